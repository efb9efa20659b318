// One block of threads a row; each limited by the latency of a pass over a row that lies in L2.

#include "backend/cuda/common/kernel.cuh"
#include "backend/cuda/common/norm.cuh"
#include "backend/cuda/common/rows.h"
#include "backend/cuda/linear/coded_rows.cuh"

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

__device__ inline int32_t embed_token(const EmbedRows& a, int64_t row) {
  const int32_t given = a.tokens[row];
  if (given >= 0) return given;
  const int32_t choice = max(a.choices[-1 - given], 0);
  return a.ids != nullptr ? a.ids[choice] : choice;
}

// A step begins here. Later kernels read, before they wait, what the step before has left in the
// cache, and the steps of a chain are one recording: none of them starts until that step has ended.
__global__ void embed_kernel(const __grid_constant__ EmbedRows a) {
  wait_for_inputs();
  start_next();
  const int64_t row = blockIdx.x;
  const int32_t given = a.embedding_index[row];
  const int32_t token = given >= 0 ? 0 : embed_token(a, row);
  for (int i = threadIdx.x; i < a.hidden; i += kThreads)
    a.out[row * a.hidden + i] = given >= 0
                                    ? a.embeddings[given * static_cast<int64_t>(a.hidden) + i]
                                    : tiled_bf16(a.table, token, i);
}

__device__ inline float4 norm_input(const NormRows& a, int64_t row, int i) {
  const int64_t at = row * a.x_stride + i;
  if (a.x != nullptr) return *reinterpret_cast<const float4*>(a.x + at);
  const uint2 bits = *reinterpret_cast<const uint2*>(a.x_bf16 + at);
  return make_float4(__uint_as_float(bits.x << 16), __uint_as_float(bits.x & 0xFFFF0000u),
                     __uint_as_float(bits.y << 16), __uint_as_float(bits.y & 0xFFFF0000u));
}

__device__ inline int64_t input_row(const NormRows& a, int64_t row) {
  return a.x_rows != nullptr ? a.x_rows[row] : row;
}

// Rows whose width is a multiple of four; for codes, of 128.
template <int kQuads>
__global__ void __launch_bounds__(kNormLanes) norm_kernel(const __grid_constant__ NormRows a) {
  __shared__ float scratch[kNormWarps];
  extern __shared__ __align__(16) uint8_t normed[];  // for codes: the row
  start_next();
  const auto weight = norm_weights<kNormLanes, kQuads>(a.width, a.weight);
  wait_for_inputs();
  const int64_t row = blockIdx.x, from = input_row(a, row);
  norm_row(
      a.width, a.epsilon, weight, [&](int i) { return norm_input(a, from, i); },
      [&](int i, uint2 four) {
        *reinterpret_cast<uint2*>(a.out + row * a.out_stride + i) = four;
        if (a.codes != nullptr) *reinterpret_cast<uint2*>(normed + 2 * i) = four;
      },
      scratch);
  if (a.codes == nullptr) return;
  __syncthreads();
  const int first = static_cast<int>(threadIdx.x) / kWarp * 256;
  for (int piece = first; piece < a.width; piece += kNormWarps * 256) {
    const int at = piece + static_cast<int>(threadIdx.x) % kWarp * 8;
    const uint4 eight = at < a.width ? *reinterpret_cast<const uint4*>(normed + 2 * at) : uint4{};
    code_inputs(eight, at, at < a.width, a.width, a.codes + row * row_pitch(a.width), a.halves);
  }
}

// Any width.
__global__ void __launch_bounds__(kThreads) odd_norm_kernel(const __grid_constant__ NormRows a) {
  __shared__ float scratch[kWarp];
  start_next();
  wait_for_inputs();
  const int64_t row = blockIdx.x, from = input_row(a, row) * a.x_stride;
  const auto x = [&](int i) {
    return a.x != nullptr ? a.x[from + i] : to_float(a.x_bf16[from + i]);
  };
  float sum = 0;
  for (int i = threadIdx.x; i < a.width; i += kThreads) sum = fmaf(x(i), x(i), sum);
  const float mean = block_sum(sum, scratch) / static_cast<float>(a.width);
  const float scale = rsqrtf(mean + a.epsilon);
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

namespace {
bool is_whole(const NormRows& args) {
  return is_quad_row(args.width, args.x_stride, args.out_stride) && args.width <= kWidestQuadRow;
}
}  // namespace

bool can_code(const NormRows& args) { return is_whole(args) && args.width % 128 == 0; }

void norm_rows(cudaStream_t stream, const NormRows& args) {
  const dim3 grid(static_cast<unsigned>(args.rows));
  CHECK(args.codes == nullptr || can_code(args), "rows of ", args.width, " cannot be coded here");
  if (is_whole(args))
    launch(stream, grid, dim3(kNormLanes),
           args.codes != nullptr ? static_cast<size_t>(2 * args.width) : 0,
           args.width <= 4 * kNormLanes * 2 ? norm_kernel<2> : norm_kernel<kNormQuads>, args);
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
