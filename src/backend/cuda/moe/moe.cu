// One warp a row for routing, one block for the grouping, one block of threads a stretch of a row
// for the sums. All are bound by latency; the bytes are a few hundred kilobytes at most.

#include "backend/cuda/common/kernel.cuh"
#include "backend/cuda/moe/moe.h"

namespace pewter::cuda {
namespace {

constexpr int kLaneExperts = 16;  // experts a lane holds: up to 512
constexpr int kRouteWarps = 4;

__global__ void __launch_bounds__(kRouteWarps* kWarp)
    route_kernel(const __grid_constant__ RouteRows a) {
  start_next();
  wait_for_inputs();
  const int lane = threadIdx.x % kWarp;
  const int row = blockIdx.x * kRouteWarps + static_cast<int>(threadIdx.x) / kWarp;
  if (row >= a.rows) return;
  const float* logits = a.logits + static_cast<int64_t>(row) * (a.experts + 1);
  float p[kLaneExperts];
  float largest = -INFINITY;
#pragma unroll
  for (int i = 0; i < kLaneExperts; ++i) {
    const int e = i * kWarp + lane;
    p[i] = e < a.experts ? logits[e] : -INFINITY;
    largest = fmaxf(largest, p[i]);
  }
  largest = warp_max(largest);
  float total = 0;
#pragma unroll
  for (int i = 0; i < kLaneExperts; ++i) {
    p[i] = expf(p[i] - largest);
    total += p[i];
  }
  total = warp_sum(total);
#pragma unroll
  for (int i = 0; i < kLaneExperts; ++i) p[i] = i * kWarp + lane < a.experts ? p[i] / total : -1.0f;

  float chosen_sum = 0, mine = 0;  // lane s keeps the weight of slot s
  for (int slot = 0; slot < a.top_k; ++slot) {
    float best = -1.0f;
    int best_expert = 0x7FFFFFFF;
#pragma unroll
    for (int i = 0; i < kLaneExperts; ++i)
      if (p[i] > best) {  // the first of equals has the lower index
        best = p[i];
        best_expert = i * kWarp + lane;
      }
#pragma unroll
    for (int offset = kWarp / 2; offset > 0; offset /= 2) {
      const float other = __shfl_xor_sync(0xFFFFFFFFu, best, offset);
      const int other_expert = __shfl_xor_sync(0xFFFFFFFFu, best_expert, offset);
      if (other > best || (other == best && other_expert < best_expert)) {
        best = other;
        best_expert = other_expert;
      }
    }
    // No probability compares with a NaN: any expert will do, the row's logits tell of the fault.
    if (best_expert >= a.experts) best_expert = slot;
#pragma unroll
    for (int i = 0; i < kLaneExperts; ++i)
      if (i * kWarp + lane == best_expert) p[i] = -1.0f;
    chosen_sum += best;
    if (lane == slot) mine = best;
    if (lane == 0) a.expert[row * a.top_k + slot] = best_expert;
  }
  if (lane < a.top_k) a.weight[row * a.top_k + lane] = mine / chosen_sum;
  if (lane == 0) a.shared_weight[row] = sigmoid(logits[a.experts]);
}

constexpr int kGroupThreads = 512;

// Thread e owns expert e: it counts its pairs, learns where they begin, and lists them in order.
__global__ void __launch_bounds__(kGroupThreads)
    group_kernel(const __grid_constant__ GroupPairs a) {
  __shared__ int pair_sums[kGroupThreads / kWarp], block_sums[kGroupThreads / kWarp];
  __shared__ int chosen[2048];
  start_next();
  wait_for_inputs();
  const int lane = threadIdx.x % kWarp, warp = threadIdx.x / kWarp;
  const int e = threadIdx.x, count = a.rows * a.top_k;
  int mine = 0;
  for (int begin = 0; begin < count; begin += 2048) {
    const int n = min(2048, count - begin);
    __syncthreads();
    for (int i = threadIdx.x; i < n; i += kGroupThreads) chosen[i] = a.expert[begin + i];
    __syncthreads();
    for (int i = 0; i < n; ++i) mine += chosen[i] == e;
  }
  const int my_blocks = (mine + a.capacity - 1) / a.capacity;
  int pairs_before = mine, blocks_before = my_blocks;  // inclusive sums over the warp
#pragma unroll
  for (int offset = 1; offset < kWarp; offset *= 2) {
    const int p = __shfl_up_sync(0xFFFFFFFFu, pairs_before, offset);
    const int b = __shfl_up_sync(0xFFFFFFFFu, blocks_before, offset);
    if (lane >= offset) {
      pairs_before += p;
      blocks_before += b;
    }
  }
  if (lane == kWarp - 1) {
    pair_sums[warp] = pairs_before;
    block_sums[warp] = blocks_before;
  }
  __syncthreads();
  int all_blocks = 0;
  for (int i = 0; i < kGroupThreads / kWarp; ++i) {
    if (i < warp) {
      pairs_before += pair_sums[i];
      blocks_before += block_sums[i];
    }
    all_blocks += block_sums[i];
  }
  int at = pairs_before - mine;
  for (int i = 0; i < my_blocks; ++i)
    a.blocks[blocks_before - my_blocks + i] = {e, at + i * a.capacity,
                                               min(a.capacity, mine - i * a.capacity)};
  for (int begin = 0; begin < count; begin += 2048) {
    const int n = min(2048, count - begin);
    __syncthreads();
    for (int i = threadIdx.x; i < n; i += kGroupThreads) chosen[i] = a.expert[begin + i];
    __syncthreads();
    if (mine > 0)
      for (int i = 0; i < n; ++i)
        if (chosen[i] == e) a.pairs[at++] = begin + i;
  }
  const int shared_blocks = (a.rows + a.capacity - 1) / a.capacity;
  for (int i = threadIdx.x; i < shared_blocks; i += kGroupThreads)
    a.blocks[all_blocks + i] = {-1, i * a.capacity, min(a.capacity, a.rows - i * a.capacity)};
  if (threadIdx.x == 0) *a.block_count = all_blocks + shared_blocks;
}

__global__ void __launch_bounds__(256) combine_kernel(const __grid_constant__ CombineRows a) {
  start_next();
  wait_for_inputs();
  const int row = blockIdx.y, i = blockIdx.x * 256 + static_cast<int>(threadIdx.x);
  if (i >= a.hidden) return;
  float sum = 0;
  for (int slot = 0; slot < a.top_k; ++slot) {
    const int64_t pair = static_cast<int64_t>(row) * a.top_k + slot;
    sum = fmaf(a.weight[pair], a.y[pair * a.hidden + i], sum);
  }
  const int64_t at = static_cast<int64_t>(row) * a.hidden + i;
  sum = fmaf(a.shared_weight[row], a.shared_y[at], sum);
  a.partial[at] = sum;
  if (a.residual != nullptr) a.residual[at] += sum;
}

}  // namespace

void route_rows(cudaStream_t stream, const RouteRows& args) {
  CHECK(args.experts <= kLaneExperts * kWarp && args.top_k <= kWarp, args.experts, " experts, ",
        args.top_k, " chosen");
  const int blocks = (args.rows + kRouteWarps - 1) / kRouteWarps;
  launch(stream, dim3(static_cast<unsigned>(blocks)), dim3(kRouteWarps * kWarp), 0, route_kernel,
         args);
}

void group_pairs(cudaStream_t stream, const GroupPairs& args) {
  CHECK(args.experts <= kGroupThreads, args.experts, " experts");
  launch(stream, dim3(1), dim3(kGroupThreads), 0, group_kernel, args);
}

void combine_rows(cudaStream_t stream, const CombineRows& args) {
  launch(stream,
         dim3(static_cast<unsigned>((args.hidden + 255) / 256), static_cast<unsigned>(args.rows)),
         dim3(256), 0, combine_kernel, args);
}

}  // namespace pewter::cuda
