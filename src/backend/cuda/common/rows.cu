// One block of threads a row; each limited by the latency of a pass over a row that lies in L2.

#include "backend/cuda/common/kernel.cuh"
#include "backend/cuda/common/matrix.cuh"
#include "backend/cuda/common/rows.h"

namespace pewter::cuda {
namespace {

constexpr int kThreads = 256;

// Element (row, k) of a tiled bf16 matrix: the inverse of weight_layout.h.
__device__ inline float tiled_bf16(const TileStack& w, int64_t row, int64_t k) {
  const int64_t tile = row / kTileOutputs, output = row % kTileOutputs;
  const int64_t block = k / 64, t = k % 64 / 16, s = k % 16 / 4, i = k % 4;
  const int64_t lane = output % 8 * 4 + t, pair = i / 2 * 2 + output / 8;
  const int64_t record = (tile * w.blocks + block) * 4 + s;
  const auto* values = reinterpret_cast<const __nv_bfloat16*>(w.values);
  return to_float(values[(record * kWarp + lane) * 8 + pair * 2 + i % 2]);
}

__global__ void embed_kernel(const __grid_constant__ EmbedRows a) {
  start_next();
  wait_for_inputs();
  const int64_t row = blockIdx.x;
  const int32_t given = a.embedding_index[row];
  for (int i = threadIdx.x; i < a.hidden; i += kThreads)
    a.out[row * a.hidden + i] = given >= 0
                                    ? a.embeddings[given * static_cast<int64_t>(a.hidden) + i]
                                    : tiled_bf16(a.table, a.tokens[row], i);
}

constexpr int kNormThreads = 512, kNormQuads = 4;  // a thread's: rows up to 8,192 stay in registers

__device__ inline float4 norm_input(const NormRows& a, int64_t row, int i) {
  const int64_t at = row * a.x_stride + i;
  if (a.x != nullptr) return *reinterpret_cast<const float4*>(a.x + at);
  const uint2 bits = *reinterpret_cast<const uint2*>(a.x_bf16 + at);
  return make_float4(__uint_as_float(bits.x << 16), __uint_as_float(bits.x & 0xFFFF0000u),
                     __uint_as_float(bits.y << 16), __uint_as_float(bits.y & 0xFFFF0000u));
}

// Rows whose width is a multiple of four.
__global__ void __launch_bounds__(kNormThreads) norm_kernel(const __grid_constant__ NormRows a) {
  __shared__ float scratch[kWarp];
  start_next();
  float4 weight[kNormQuads];
#pragma unroll
  for (int j = 0; j < kNormQuads; ++j) {
    const int i = 4 * (static_cast<int>(threadIdx.x) + j * kNormThreads);
    if (i < a.width) weight[j] = *reinterpret_cast<const float4*>(a.weight + i);
  }
  wait_for_inputs();
  const int64_t row = blockIdx.x;
  float4 x[kNormQuads];
  float sum = 0;
#pragma unroll
  for (int j = 0; j < kNormQuads; ++j) {
    const int i = 4 * (static_cast<int>(threadIdx.x) + j * kNormThreads);
    if (i < a.width) x[j] = norm_input(a, row, i);
  }
#pragma unroll
  for (int j = 0; j < kNormQuads; ++j) {
    const int i = 4 * (static_cast<int>(threadIdx.x) + j * kNormThreads);
    if (i < a.width)
      sum += fmaf(x[j].x, x[j].x, x[j].y * x[j].y) + fmaf(x[j].z, x[j].z, x[j].w * x[j].w);
  }
  const float mean = block_sum(sum, scratch) / static_cast<float>(a.width);
  const float scale = 1.0f / sqrtf(mean + a.epsilon);
#pragma unroll
  for (int j = 0; j < kNormQuads; ++j) {
    const int i = 4 * (static_cast<int>(threadIdx.x) + j * kNormThreads);
    if (i >= a.width) continue;
    const uint2 four = {
        pack_bf16(x[j].x * scale * (1.0f + weight[j].x), x[j].y * scale * (1.0f + weight[j].y)),
        pack_bf16(x[j].z * scale * (1.0f + weight[j].z), x[j].w * scale * (1.0f + weight[j].w))};
    *reinterpret_cast<uint2*>(a.out + row * a.out_stride + i) = four;
  }
}

// Any width.
__global__ void __launch_bounds__(kThreads) odd_norm_kernel(const __grid_constant__ NormRows a) {
  __shared__ float scratch[kWarp];
  start_next();
  wait_for_inputs();
  const int64_t row = blockIdx.x;
  const auto x = [&](int i) {
    return a.x != nullptr ? a.x[row * a.x_stride + i] : to_float(a.x_bf16[row * a.x_stride + i]);
  };
  float sum = 0;
  for (int i = threadIdx.x; i < a.width; i += kThreads) sum = fmaf(x(i), x(i), sum);
  const float mean = block_sum(sum, scratch) / static_cast<float>(a.width);
  const float scale = 1.0f / sqrtf(mean + a.epsilon);
  for (int i = threadIdx.x; i < a.width; i += kThreads)
    a.out[row * a.out_stride + i] = __float2bfloat16(x(i) * scale * (1.0f + a.weight[i]));
}

__global__ void add_kernel(const float* from, float* to, int64_t count) {
  start_next();
  wait_for_inputs();
  const int64_t i = blockIdx.x * static_cast<int64_t>(blockDim.x) + threadIdx.x;
  if (i < count) to[i] += from[i];
}

__global__ void copy_kernel(const uint32_t* from, uint32_t* to, int64_t count) {
  start_next();
  wait_for_inputs();
  const int64_t i = blockIdx.x * static_cast<int64_t>(blockDim.x) + threadIdx.x;
  if (i < count) to[i] = from[i];
}

unsigned blocks_for(int64_t count) {
  return static_cast<unsigned>((count + kThreads - 1) / kThreads);
}

}  // namespace

void embed_rows(cudaStream_t stream, const EmbedRows& args) {
  launch(stream, dim3(static_cast<unsigned>(args.rows)), dim3(kThreads), 0, embed_kernel, args);
}

void norm_rows(cudaStream_t stream, const NormRows& args) {
  const dim3 grid(static_cast<unsigned>(args.rows));
  const bool whole = args.width % 4 == 0 && args.x_stride % 4 == 0 && args.out_stride % 4 == 0 &&
                     args.width <= 4 * kNormThreads * kNormQuads;
  if (whole)
    launch(stream, grid, dim3(kNormThreads), 0, norm_kernel, args);
  else
    launch(stream, grid, dim3(kThreads), 0, odd_norm_kernel, args);
}

void add_values(cudaStream_t stream, const float* from, float* to, int64_t count) {
  launch(stream, dim3(blocks_for(count)), dim3(kThreads), 0, add_kernel, from, to, count);
}

void copy_bytes(cudaStream_t stream, const void* from, void* to, int64_t bytes) {
  CHECK(bytes % 4 == 0, "copy of ", bytes, " bytes");
  launch(stream, dim3(blocks_for(bytes / 4)), dim3(kThreads), 0, copy_kernel,
         static_cast<const uint32_t*>(from), static_cast<uint32_t*>(to), bytes / 4);
}

}  // namespace pewter::cuda
