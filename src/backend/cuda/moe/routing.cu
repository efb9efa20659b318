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

constexpr int kGroupThreads = 512;
constexpr int kChosen = 2048;  // choices looked at together
static_assert(kFewRows <= 64, "a bit for each row");

struct GroupShared {
  int pair_sums[kGroupThreads / kWarp], block_sums[kGroupThreads / kWarp];
  int chosen[kChosen];
  unsigned long long rows_of[kGroupThreads];  // expert's: bit r for row r
  int pairs_before[kGroupThreads];
  bool is_last;
};

// Of few rows: which of them each expert has. False if a row has one twice (routing.cuh).
__device__ inline bool note_rows(const GroupPairs& a, GroupShared& s) {
  const int thread = static_cast<int>(threadIdx.x), count = a.rows * a.top_k;
  if (a.rows > kFewRows) return false;
  s.rows_of[thread] = 0;
  __syncthreads();
  bool twice = false;
  for (int i = thread; i < count; i += kGroupThreads) {
    const unsigned long long bit = 1ull << i / a.top_k;
    twice |= (atomicOr(s.rows_of + __ldcg(a.expert + i), bit) & bit) != 0;
  }
  return __syncthreads_or(twice) == 0;
}

// Thread e owns expert e: it counts its pairs, learns where they begin, and lists them in order.
__device__ inline void group_all(const GroupPairs& a, GroupShared& s) {
  const int lane = threadIdx.x % kWarp, warp = threadIdx.x / kWarp;
  const int e = threadIdx.x, count = a.rows * a.top_k;
  int mine = 0, n = 0;
  const auto read = [&](int begin) {
    n = min(kChosen, count - begin);
    __syncthreads();
    for (int i = threadIdx.x; i < n; i += kGroupThreads) s.chosen[i] = __ldcg(a.expert + begin + i);
    __syncthreads();
  };
  const bool noted = note_rows(a, s);
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
    for (int i = threadIdx.x; i < count; i += kGroupThreads) {
      const int expert = __ldcg(a.expert + i);
      const unsigned long long before = (1ull << i / a.top_k) - 1;
      a.pairs[s.pairs_before[expert] + __popcll(s.rows_of[expert] & before)] = i;
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
  group_all(a, s);
}

// Both: a warp routes a row, and the last block of threads to have routed groups.
__global__ void __launch_bounds__(kGroupThreads)
    route_group_kernel(const __grid_constant__ RouteRows route,
                       const __grid_constant__ GroupPairs group) {
  __shared__ GroupShared s;
  start_next();
  wait_for_inputs();
  const auto row = static_cast<int>((blockIdx.x * kGroupThreads + threadIdx.x) / kWarp);
  if (row < route.rows) route_one(route, row);
  __syncthreads();
  if (gridDim.x > 1) {
    if (threadIdx.x == 0) {
      __threadfence();
      s.is_last = atomicAdd(group.arrived, 1) == static_cast<int>(gridDim.x) - 1;
      if (s.is_last) *group.arrived = 0;
      __threadfence();
    }
    __syncthreads();
    if (!s.is_last) return;
  }
  group_all(group, s);
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
  constexpr int kRows = kGroupThreads / kWarp;
  launch(stream, dim3(static_cast<unsigned>((route.rows + kRows - 1) / kRows)), dim3(kGroupThreads),
         0, route_group_kernel, route, group);
  return true;
}

}  // namespace pewter::cuda
