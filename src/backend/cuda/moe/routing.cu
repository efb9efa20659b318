// One warp a row for routing, one block of threads for the grouping. Bound by latency: the bytes
// are a few kilobytes.

#include "backend/cuda/moe/routing.cuh"

namespace pewter::cuda {
namespace {

constexpr int kLaneExperts = kMostExperts / kWarp;
constexpr int kRowWarps = 4;

__device__ inline void route_one(const RouteRows& a, int row) {
  route_row<kLaneExperts>(a.experts, a.top_k, a.logits + row * (a.experts + 1),
                          a.expert + row * a.top_k, a.weight + row * a.top_k,
                          a.shared_weight + row);
}

constexpr int kGroupThreads = 512, kGroupRows = kGroupThreads / kWarp;
constexpr int kChosen = 2048;  // choices looked at together
static_assert(kFewRows <= 64, "a bit for each row");

struct GroupShared {
  int pair_sums[kGroupThreads / kWarp], block_sums[kGroupThreads / kWarp];
  int chosen[kChosen];
  unsigned long long rows_of[kGroupThreads];  // expert's: bit r for row r
  int pairs_before[kGroupThreads];
  bool is_last;
};

// Of few rows, whose choice i thread i has: which of them each expert has. False if there are more
// choices than threads, or a row has an expert twice (routing.cuh).
__device__ inline bool note_rows(const GroupPairs& a, GroupShared& s, int expert) {
  const int thread = static_cast<int>(threadIdx.x), count = a.rows * a.top_k;
  if (a.rows > kFewRows || count > kGroupThreads) return false;
  s.rows_of[thread] = 0;
  __syncthreads();
  bool twice = false;
  if (thread < count) {
    const unsigned long long bit = 1ull << thread / a.top_k;
    twice = (atomicOr(s.rows_of + expert, bit) & bit) != 0;
  }
  return __syncthreads_or(twice) == 0;
}

// Thread e owns expert e: it counts its pairs, learns where they begin, and lists them in order.
// choice: number threadIdx.x of all.
__device__ inline void group_all(const GroupPairs& a, GroupShared& s, int choice) {
  const int lane = threadIdx.x % kWarp, warp = threadIdx.x / kWarp;
  const int e = threadIdx.x, count = a.rows * a.top_k;
  int mine = 0, n = 0;
  const auto read = [&](int begin) {
    n = min(kChosen, count - begin);
    __syncthreads();
    for (int i = threadIdx.x; i < n; i += kGroupThreads) s.chosen[i] = __ldcg(a.expert + begin + i);
    __syncthreads();
  };
  const bool noted = note_rows(a, s, choice);
  if (noted) {
    mine = __popcll(s.rows_of[e]);
  } else {
    for (int begin = 0; begin < count; begin += kChosen) {
      read(begin);
      for (int i = 0; i < n; ++i) mine += s.chosen[i] == e;
    }
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
  s.pairs_before[e] = at;
  for (int i = 0; i < my_blocks; ++i)
    a.blocks[shared_blocks + blocks_before - my_blocks + i] = {
        e, at + i * a.capacity, min(a.capacity, mine - i * a.capacity)};
  if (noted) {
    __syncthreads();
    if (e < count) {
      const unsigned long long before = (1ull << e / a.top_k) - 1;
      a.pairs[s.pairs_before[choice] + __popcll(s.rows_of[choice] & before)] = e;
    }
  } else {
    for (int begin = 0; begin < count; begin += kChosen) {
      if (count > kChosen) read(begin);  // a single stretch is still there
      if (mine > 0)
        for (int i = 0; i < n; ++i)
          if (s.chosen[i] == e) a.pairs[at++] = begin + i;
    }
  }
  for (int i = threadIdx.x; i < shared_blocks; i += kGroupThreads)
    a.blocks[i] = {-1, i * a.capacity, min(a.capacity, a.rows - i * a.capacity)};
  if (threadIdx.x == 0) *a.block_count = all_blocks + shared_blocks;
}

__global__ void __launch_bounds__(kRowWarps* kWarp)
    route_kernel(const __grid_constant__ RouteRows a) {
  start_next();
  wait_for_inputs();
  const int first = blockIdx.x * kRowWarps, warp = static_cast<int>(threadIdx.x) / kWarp;
  if (first + warp < a.rows) route_one(a, first + warp);
}

__global__ void __launch_bounds__(kGroupThreads)
    group_kernel(const __grid_constant__ GroupPairs a) {
  __shared__ GroupShared s;
  start_next();
  wait_for_inputs();
  const int thread = static_cast<int>(threadIdx.x);
  group_all(a, s, thread < a.rows * a.top_k ? a.expert[thread] : 0);
}

// Both: a warp routes a row, and the last block of threads to have routed groups.
__global__ void __launch_bounds__(kGroupThreads)
    route_group_kernel(const __grid_constant__ RouteRows route,
                       const __grid_constant__ GroupPairs group) {
  __shared__ GroupShared s;
  start_next();
  wait_for_inputs();
  const int thread = static_cast<int>(threadIdx.x), top_k = route.top_k;
  const int my_row = thread / kWarp, row = static_cast<int>(blockIdx.x) * kGroupRows + my_row;
  if (row < route.rows) {
    int32_t* const chosen = s.chosen + my_row * top_k;
    route_row<kLaneExperts>(route.experts, top_k, route.logits + row * (route.experts + 1), chosen,
                            route.weight + row * top_k, route.shared_weight + row);
    __syncwarp();
    if (thread % kWarp < top_k) route.expert[row * top_k + thread % kWarp] = chosen[thread % kWarp];
  }
  __syncthreads();
  const bool alone = gridDim.x == 1;
  if (!alone) {
    if (thread == 0) {
      __threadfence();
      s.is_last = atomicAdd(group.arrived, 1) == static_cast<int>(gridDim.x) - 1;
      if (s.is_last) *group.arrived = 0;
      __threadfence();
    }
    __syncthreads();
    if (!s.is_last) return;
  }
  int choice = 0;
  if (thread < route.rows * top_k)
    choice = alone ? s.chosen[thread] : __ldcg(route.expert + thread);
  __syncthreads();
  group_all(group, s, choice);
}

}  // namespace

void route_rows(cudaStream_t stream, const RouteRows& args) {
  CHECK(args.experts <= kLaneExperts * kWarp && args.top_k <= kWarp, args.experts, " experts, ",
        args.top_k, " chosen");
  const int blocks = (args.rows + kRowWarps - 1) / kRowWarps;
  launch(stream, dim3(static_cast<unsigned>(blocks)), dim3(kRowWarps * kWarp), 0, route_kernel,
         args);
}

void group_pairs(cudaStream_t stream, const GroupPairs& args) {
  CHECK(args.experts <= kGroupThreads, args.experts, " experts");
  launch(stream, dim3(1), dim3(kGroupThreads), 0, group_kernel, args);
}

bool route_and_group(cudaStream_t stream, const RouteRows& route, const GroupPairs& group) {
  if (route.rows > kFewRows) return false;
  CHECK(route.experts <= kLaneExperts * kWarp && route.top_k <= kWarp, route.experts, " experts, ",
        route.top_k, " chosen");
  launch(stream, dim3(static_cast<unsigned>((route.rows + kGroupRows - 1) / kGroupRows)),
         dim3(kGroupThreads), 0, route_group_kernel, route, group);
  return true;
}

}  // namespace pewter::cuda
