// One warp a row for routing, one block for the grouping, one block of threads a stretch of a row
// for the sums. All are bound by latency; the bytes are a few hundred kilobytes at most.

#include "backend/cuda/common/kernel.cuh"
#include "backend/cuda/moe/moe.h"

namespace pewter::cuda {
namespace {

constexpr int kLaneExperts = 16;  // experts a lane holds: up to 512
constexpr int kMostLogits = kLaneExperts * kWarp + 1, kMostSlices = 8;
constexpr int kRouteWarps = 4;

// The logits of `rows` rows from `first` on, slices of k added in order, by all threads of a block.
__device__ inline void add_slices(const RouteRows& a, int first, int rows, float* logits) {
  const int width = a.experts + 1;
  const int64_t slice = static_cast<int64_t>(a.rows) * width;
  const float* from = a.logits + static_cast<int64_t>(first) * width;
  for (int i = threadIdx.x; i < rows * width; i += blockDim.x) {
    float parts[kMostSlices];
#pragma unroll
    for (int s = 0; s < kMostSlices; ++s) parts[s] = s < a.slices ? from[s * slice + i] : 0.0f;
    float sum = 0;
#pragma unroll
    for (int s = 0; s < kMostSlices; ++s) sum += parts[s];
    logits[i] = sum;
  }
  __syncthreads();
}

// One warp routes one row; its logits, the shared gate's last, are in shared memory.
__device__ inline void route_row(const RouteRows& a, int row, const float* logits) {
  constexpr uint32_t kAll = 0xFFFFFFFFu;
  const int lane = threadIdx.x % kWarp;
  float p[kLaneExperts], largest = -INFINITY;
#pragma unroll
  for (int i = 0; i < kLaneExperts; ++i)
    p[i] = i * kWarp + lane < a.experts ? logits[i * kWarp + lane] : -INFINITY;
#pragma unroll
  for (int i = 0; i < kLaneExperts; ++i) largest = fmaxf(largest, p[i]);
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
    int best_expert = 0;
#pragma unroll
    for (int i = 0; i < kLaneExperts; ++i)
      if (p[i] > best) {  // the first of equals has the lower index
        best = p[i];
        best_expert = i * kWarp + lane;
      }
    // Probabilities are not negative: their bits are in their order. What is taken counts as 0
    // bits, and a NaN is never the best: then any expert will do, the row's logits tell of the
    // fault.
    const uint32_t bits = best >= 0.0f ? __float_as_uint(best) + 1 : 0;
    const uint32_t most = __reduce_max_sync(kAll, bits);
    const uint32_t candidate = bits == most && most > 0 ? static_cast<uint32_t>(best_expert) : kAll;
    uint32_t expert = __reduce_min_sync(kAll, candidate);
    if (expert == kAll) expert = static_cast<uint32_t>(slot);
    best = most > 0 ? __uint_as_float(most - 1) : 0.0f;
#pragma unroll
    for (int i = 0; i < kLaneExperts; ++i)
      if (static_cast<uint32_t>(i * kWarp + lane) == expert) p[i] = -1.0f;
    chosen_sum += best;
    if (lane == slot) mine = best;
    if (lane == 0) a.expert[row * a.top_k + slot] = static_cast<int32_t>(expert);
  }
  if (lane < a.top_k) a.weight[row * a.top_k + lane] = mine / chosen_sum;
  if (lane == 0) a.shared_weight[row] = sigmoid(logits[a.experts]);
}

constexpr int kGroupThreads = 512;
constexpr int kChosen = 2048;  // choices looked at together

struct GroupShared {
  int pair_sums[kGroupThreads / kWarp], block_sums[kGroupThreads / kWarp];
  int chosen[kChosen];
};

// Thread e owns expert e: it counts its pairs, learns where they begin, and lists them in order.
__device__ inline void group_all(const GroupPairs& a, GroupShared& s) {
  const int lane = threadIdx.x % kWarp, warp = threadIdx.x / kWarp;
  const int e = threadIdx.x, count = a.rows * a.top_k;
  int mine = 0, n = 0;
  const auto read = [&](int begin) {
    n = min(kChosen, count - begin);
    __syncthreads();
    for (int i = threadIdx.x; i < n; i += kGroupThreads) s.chosen[i] = a.expert[begin + i];
    __syncthreads();
  };
  for (int begin = 0; begin < count; begin += kChosen) {
    read(begin);
    for (int i = 0; i < n; ++i) mine += s.chosen[i] == e;
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
    s.pair_sums[warp] = pairs_before;
    s.block_sums[warp] = blocks_before;
  }
  __syncthreads();
  int all_blocks = 0;
  for (int i = 0; i < kGroupThreads / kWarp; ++i) {
    if (i < warp) {
      pairs_before += s.pair_sums[i];
      blocks_before += s.block_sums[i];
    }
    all_blocks += s.block_sums[i];
  }
  const int shared_blocks = (a.rows + a.capacity - 1) / a.capacity;
  int at = pairs_before - mine;
  for (int i = 0; i < my_blocks; ++i)
    a.blocks[shared_blocks + blocks_before - my_blocks + i] = {
        e, at + i * a.capacity, min(a.capacity, mine - i * a.capacity)};
  for (int begin = 0; begin < count; begin += kChosen) {
    if (count > kChosen) read(begin);  // a single stretch is still there
    if (mine > 0)
      for (int i = 0; i < n; ++i)
        if (s.chosen[i] == e) a.pairs[at++] = begin + i;
  }
  for (int i = threadIdx.x; i < shared_blocks; i += kGroupThreads)
    a.blocks[i] = {-1, i * a.capacity, min(a.capacity, a.rows - i * a.capacity)};
  if (threadIdx.x == 0) *a.block_count = all_blocks + shared_blocks;
}

__global__ void __launch_bounds__(kRouteWarps* kWarp)
    route_kernel(const __grid_constant__ RouteRows a) {
  __shared__ float logits[kRouteWarps * kMostLogits];
  start_next();
  wait_for_inputs();
  const int first = blockIdx.x * kRouteWarps, warp = static_cast<int>(threadIdx.x) / kWarp;
  add_slices(a, first, min(kRouteWarps, a.rows - first), logits);
  if (first + warp < a.rows) route_row(a, first + warp, logits + warp * (a.experts + 1));
}

__global__ void __launch_bounds__(kGroupThreads)
    group_kernel(const __grid_constant__ GroupPairs a) {
  __shared__ GroupShared s;
  start_next();
  wait_for_inputs();
  group_all(a, s);
}

// Both, for as many rows as the block has warps.
__global__ void __launch_bounds__(kGroupThreads)
    route_group_kernel(const __grid_constant__ RouteRows route,
                       const __grid_constant__ GroupPairs group) {
  __shared__ GroupShared s;
  __shared__ float logits[kGroupThreads / kWarp * kMostLogits];
  start_next();
  wait_for_inputs();
  add_slices(route, 0, route.rows, logits);
  const int row = static_cast<int>(threadIdx.x) / kWarp;
  if (row < route.rows) route_row(route, row, logits + row * (route.experts + 1));
  __syncthreads();
  group_all(group, s);
}

__global__ void __launch_bounds__(256) combine_kernel(const __grid_constant__ CombineRows a) {
  start_next();
  wait_for_inputs();
  constexpr int kTogether = 8;  // slots whose loads are on their way at once
  const int row = blockIdx.y, i = blockIdx.x * 256 + static_cast<int>(threadIdx.x);
  if (i >= a.hidden) return;
  const int64_t at = static_cast<int64_t>(row) * a.hidden + i;
  const float shared = a.shared_y[at], before = a.residual != nullptr ? a.residual[at] : 0.0f;
  float sum = 0;
  for (int first = 0; first < a.top_k; first += kTogether) {
    float y[kTogether], weight[kTogether];
#pragma unroll
    for (int slot = 0; slot < kTogether; ++slot) {
      if (first + slot >= a.top_k) continue;
      const int64_t pair = static_cast<int64_t>(row) * a.top_k + first + slot;
      y[slot] = a.y[pair * a.hidden + i];
      weight[slot] = a.weight[pair];
    }
#pragma unroll
    for (int slot = 0; slot < kTogether; ++slot)
      if (first + slot < a.top_k) sum = fmaf(weight[slot], y[slot], sum);
  }
  sum = fmaf(a.shared_weight[row], shared, sum);
  a.partial[at] = sum;
  if (a.residual != nullptr) a.residual[at] = before + sum;
}

}  // namespace

void route_rows(cudaStream_t stream, const RouteRows& args) {
  CHECK(args.experts <= kLaneExperts * kWarp && args.top_k <= kWarp && args.slices <= kMostSlices,
        args.experts, " experts, ", args.top_k, " chosen");
  const int blocks = (args.rows + kRouteWarps - 1) / kRouteWarps;
  launch(stream, dim3(static_cast<unsigned>(blocks)), dim3(kRouteWarps * kWarp), 0, route_kernel,
         args);
}

void group_pairs(cudaStream_t stream, const GroupPairs& args) {
  CHECK(args.experts <= kGroupThreads, args.experts, " experts");
  launch(stream, dim3(1), dim3(kGroupThreads), 0, group_kernel, args);
}

bool route_and_group(cudaStream_t stream, const RouteRows& route, const GroupPairs& group) {
  if (route.rows > kGroupThreads / kWarp) return false;
  CHECK(route.experts <= kLaneExperts * kWarp && route.top_k <= kWarp, route.experts, " experts, ",
        route.top_k, " chosen");
  launch(stream, dim3(1), dim3(kGroupThreads), 0, route_group_kernel, route, group);
  return true;
}

void combine_rows(cudaStream_t stream, const CombineRows& args) {
  launch(stream,
         dim3(static_cast<unsigned>((args.hidden + 255) / 256), static_cast<unsigned>(args.rows)),
         dim3(256), 0, combine_kernel, args);
}

}  // namespace pewter::cuda
