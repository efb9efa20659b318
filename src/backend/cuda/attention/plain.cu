// Preparing rows for attention, and attention one (row, query head) a block: the definition the
// split kernel is tested against.

#include "backend/cuda/attention/prepare.cuh"
#include "backend/cuda/common/prefetch.cuh"

namespace pewter::cuda {
namespace {

constexpr int kThreads = 128;

__device__ inline int visible(const AttentionBatch& b, int row) {
  const int sequence = b.row_sequence[row];
  return b.context_length[sequence] + row - b.row_begin[sequence] + 1;
}

// One warp a head of one row: norm, rotation, and where the result goes. The norm's weights are
// asked for before the kernel before has ended.
__global__ void __launch_bounds__(kThreads) prepare_kernel(const __grid_constant__ PrepareArgs a) {
  __shared__ float heads[kThreads / kWarp][kMostHead];
  start_next();
  if (threadIdx.x == 0 && blockIdx.x == 0)
    prefetch(a.next, static_cast<int>(blockIdx.y), static_cast<int>(gridDim.y));
  const int row = blockIdx.x, lane = threadIdx.x % kWarp, warp = threadIdx.x / kWarp;
  const int d = a.shape.head_dim, nq = a.shape.query_heads, nkv = a.shape.kv_heads;
  const int head = blockIdx.y * (kThreads / kWarp) + warp;  // query heads, then key heads
  if (head >= nq + nkv) return;
  const bool is_key = head >= nq;
  const float* const norm = is_key ? a.k_norm : a.q_norm;
  float weight[kHeadEach];
#pragma unroll
  for (int j = 0; j < kHeadEach; ++j)
    if (const int i = lane + j * kWarp; i < d) weight[j] = norm[i];
  wait_for_inputs();

  const __nv_bfloat16* const in = a.in + row * a.in_stride;
  const __nv_bfloat16* const from = is_key ? in + nq * 2 * d + (head - nq) * d : in + head * 2 * d;
  __nv_bfloat16 given[kHeadEach], value[kHeadEach];
#pragma unroll
  for (int j = 0; j < kHeadEach; ++j)
    if (const int i = lane + j * kWarp; i < d) {
      given[j] = from[i];
      if (is_key) value[j] = from[nkv * d + i];
    }
  const int sequence = a.batch.sequences == 1 ? 0 : a.batch.row_sequence[row];
  const int delta = a.position_delta[sequence];
  int64_t at = 0;
  if (is_key)
    at = element_of(a.batch, a.shape, a.cache.page_bytes, sequence, visible(a.batch, row) - 1,
                    head - nq);
  const Rotation<kHeadEach / 2> rotation(
      a, [&](int axis) { return a.positions[3 * row + axis] + delta; });

  float* const x = heads[warp];
  prepare_head(a, d, given, weight, rotation, x);
  auto* const key = reinterpret_cast<__nv_bfloat16*>(a.cache.keys) + at;
  auto* const kept = reinterpret_cast<__nv_bfloat16*>(a.cache.values) + at;
  __nv_bfloat16* const q = a.q + row * a.q_stride + head * d;
#pragma unroll
  for (int j = 0; j < kHeadEach; ++j) {
    const int i = lane + j * kWarp;
    if (i >= d) continue;
    (is_key ? key : q)[i] = __float2bfloat16(x[i]);
    if (is_key) kept[i] = value[j];
  }
}

// Positions in steps of kThreads, a thread a position, online softmax; then a thread a dimension.
__global__ void __launch_bounds__(kThreads) plain_kernel(const __grid_constant__ AttendArgs a) {
  __shared__ float q[kMostHead], weights[kThreads], scratch[kWarp];
  start_next();
  wait_for_inputs();
  const int head = blockIdx.x, row = blockIdx.y, d = a.shape.head_dim;
  const int kv_head = head / (a.shape.query_heads / a.shape.kv_heads);
  const int sequence = a.batch.row_sequence[row], end = visible(a.batch, row);
  const auto* keys = reinterpret_cast<const __nv_bfloat16*>(a.cache.keys);
  const auto* values = reinterpret_cast<const __nv_bfloat16*>(a.cache.values);
  const float scale = 1.0f / sqrtf(static_cast<float>(d));
  for (int i = threadIdx.x; i < d; i += kThreads)
    q[i] = to_float(a.q[row * a.q_stride + head * d + i]);
  __syncthreads();

  float largest = -INFINITY, total = 0, sums[kMostHead / kThreads] = {};
  const int first = a.window > 0 ? max(end - a.window, 0) : 0;
  for (int begin = first; begin < end; begin += kThreads) {
    const int position = begin + static_cast<int>(threadIdx.x);
    float score = -INFINITY;
    if (position < end) {
      const __nv_bfloat16* key =
          keys + element_of(a.batch, a.shape, a.cache.page_bytes, sequence, position, kv_head);
      float sum = 0;
      for (int i = 0; i < d; ++i) sum = fmaf(q[i], to_float(key[i]), sum);
      score = sum * scale;
    }
    float chunk = warp_max(score);
    if (threadIdx.x % kWarp == 0) scratch[threadIdx.x / kWarp] = chunk;
    __syncthreads();
    for (int i = 0; i < kThreads / kWarp; ++i) chunk = fmaxf(chunk, scratch[i]);
    const float before = largest;
    largest = fmaxf(largest, chunk);
    const float shrink = expf(before - largest);
    weights[threadIdx.x] = position < end ? expf(score - largest) : 0.0f;
    __syncthreads();
    total *= shrink;
    for (float& sum : sums) sum *= shrink;
    const int count = min(kThreads, end - begin);
    for (int i = 0; i < count; ++i) {
      const __nv_bfloat16* value =
          values + element_of(a.batch, a.shape, a.cache.page_bytes, sequence, begin + i, kv_head);
      total += weights[i];
#pragma unroll
      for (int j = 0; j < kMostHead / kThreads; ++j) {
        const int dimension = static_cast<int>(threadIdx.x) + j * kThreads;
        if (dimension < d) sums[j] = fmaf(weights[i], to_float(value[dimension]), sums[j]);
      }
    }
    __syncthreads();
  }
#pragma unroll
  for (int j = 0; j < kMostHead / kThreads; ++j) {
    const int dimension = static_cast<int>(threadIdx.x) + j * kThreads;
    if (dimension >= d) continue;
    const float gate = to_float(a.in[row * a.in_stride + head * 2 * d + d + dimension]);
    a.out[row * a.out_stride + head * d + dimension] =
        __float2bfloat16(sums[j] / total * sigmoid(gate));
  }
}

}  // namespace

void attention_prepare(cudaStream_t stream, const PrepareArgs& args) {
  CHECK(args.shape.head_dim <= kMostHead, "attention heads of ", args.shape.head_dim);
  const int heads = args.shape.query_heads + args.shape.kv_heads, warps = kThreads / kWarp;
  launch(stream,
         dim3(static_cast<unsigned>(args.batch.rows),
              static_cast<unsigned>((heads + warps - 1) / warps)),
         dim3(kThreads), 0, prepare_kernel, args);
}

void attend_plain(cudaStream_t stream, const AttendArgs& args) {
  CHECK(args.shape.head_dim <= kMostHead, "attention heads of ", args.shape.head_dim);
  launch(
      stream,
      dim3(static_cast<unsigned>(args.shape.query_heads), static_cast<unsigned>(args.batch.rows)),
      dim3(kThreads), 0, plain_kernel, args);
}

}  // namespace pewter::cuda
