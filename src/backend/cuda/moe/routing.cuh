// Routing of a row, and grouping of few rows, for whoever needs them.
//
// The softmax keeps the order of the logits, and its sum falls out of the chosen ones' weights. Of
// equal logits the lower index comes first. A NaN is never chosen before another; a row that has
// too many of them gets any expert, its logits tell of the fault.
#pragma once

#include "backend/cuda/common/arrival.cuh"
#include "backend/cuda/common/kernel.cuh"
#include "backend/cuda/moe/routing.h"

namespace pewter::cuda {

constexpr int kMostExperts = 512;

// Integers in the order of the logits; kNone, below all, for a NaN.
constexpr uint32_t kNone = 1;
__device__ inline uint32_t order_of(float logit) {
  const uint32_t bits = __float_as_uint(logit);
  if (!(logit >= -INFINITY)) return kNone;
  return bits >> 31 != 0 ? ~bits : bits | 0x80000000u;
}
__device__ inline float logit_of(uint32_t order) {
  return __uint_as_float(order >> 31 != 0 ? order & 0x7FFFFFFFu : ~order);
}

// A warp weighs a row's choice: lane s has the logit of slot s.
__device__ inline void weigh(float chosen, float gate, int top_k, float* weight,
                             float* shared_weight) {
  const int lane = threadIdx.x % kWarp;
  const float largest = __shfl_sync(0xFFFFFFFFu, chosen, 0);
  const float exponential = lane < top_k ? expf(chosen - largest) : 0.0f;
  const float sum = warp_sum(exponential);
  if (lane < top_k) weight[lane] = exponential / sum;
  if (lane == 0) *shared_weight = sigmoid(gate);
}

// One warp routes one row; logits: the shared gate's last. expert, weight:
// the row's [top_k]; shared_weight: the row's. kLaneExperts: what a lane holds.
template <int kLaneExperts>
__device__ inline void route_row(int experts, int top_k, const float* logits, int32_t* expert,
                                 float* weight, float* shared_weight) {
  constexpr uint32_t kAll = 0xFFFFFFFFu;
  const int lane = threadIdx.x % kWarp;
  uint32_t key[kLaneExperts], mine = kNone;
  const float gate = __ldcg(logits + experts);
#pragma unroll
  for (int i = 0; i < kLaneExperts; ++i) {
    const float logit = i * kWarp + lane < experts ? __ldcg(logits + i * kWarp + lane) : -INFINITY;
    key[i] = i * kWarp + lane < experts ? order_of(logit) : kNone;
    mine = max(mine, key[i]);
  }
  float chosen = 0;  // lane s keeps the logit of slot s
  for (int slot = 0; slot < top_k; ++slot) {
    const uint32_t most = __reduce_max_sync(kAll, mine);
    uint32_t candidate = kAll;
    if (mine == most && most > kNone)
#pragma unroll
      for (int i = kLaneExperts - 1; i >= 0; --i)  // the first of equals has the lower index
        if (key[i] == most) candidate = static_cast<uint32_t>(i * kWarp + lane);
    uint32_t taken = __reduce_min_sync(kAll, candidate);
    if (taken == candidate && taken != kAll) {
      mine = kNone;
#pragma unroll
      for (int i = 0; i < kLaneExperts; ++i) {
        if (static_cast<uint32_t>(i * kWarp + lane) == taken) key[i] = kNone;
        mine = max(mine, key[i]);
      }
    }
    if (taken == kAll) taken = static_cast<uint32_t>(slot);
    if (lane == slot) chosen = logit_of(most);
    if (lane == 0) expert[slot] = static_cast<int32_t>(taken);
  }
  weigh(chosen, gate, top_k, weight, shared_weight);
}

// Few rows, routed and grouped by every block of threads for itself: of one row and two that costs
// less than a kernel of its own. Of each 32 experts the kFewChosen largest logits are candidates; a
// candidate with fewer than top_k larger ones is chosen. Ranks are counts of comparisons, which
// wait for nothing. The code is short loops: what runs once costs its way from the instruction
// cache.
constexpr int kFewRouted = 2, kFewExperts = 256, kFewChosen = 8;  // rows, experts, top_k: at most
constexpr int kRouteWarps = kFewExperts / kWarp, kCandidates = kRouteWarps * kFewChosen;
constexpr int kRouteChoices = kFewRouted * kFewChosen;
// Of up to kMost rows. For one row the code is much shorter.
template <int kMost>
struct Routing {
  static constexpr int kChoices = kMost * kFewChosen, kBlocks = kChoices + kMost;
  uint32_t order[kFewExperts];
  uint32_t candidate[kMost][kCandidates];
  float logit[kMost][kFewChosen];
  int32_t index[kMost][kCandidates];
  int32_t expert[kChoices], leads[kChoices], pairs[kChoices];
  float weight[kChoices], shared_weight[kMost];
  RowBlock blocks[kBlocks];  // the shared expert's, then the others
  int32_t block_count;
};

// How many of values begin … begin + count − 1 come before `order`, which has place `place`.
__device__ inline int rank_among(uint32_t order, int place, const uint32_t* values, int begin,
                                 int count) {
  int rank = 0;
#pragma unroll 1
  for (int j = begin; j < begin + count; j += 4) {
    const uint4 four = *reinterpret_cast<const uint4*>(values + j);
    const int before = place - j;  // of these come earlier
    rank += four.x > order - (before > 0 ? 1 : 0) ? 1 : 0;
    rank += four.y > order - (before > 1 ? 1 : 0) ? 1 : 0;
    rank += four.z > order - (before > 2 ? 1 : 0) ? 1 : 0;
    rank += four.w > order - (before > 3 ? 1 : 0) ? 1 : 0;
  }
  return rank;
}

// By the threads of a block, kRouteWarps warps at least. `begin` is called when the blocks are
// complete; the weights of the choices, for those that want them, are complete after the next
// barrier. sync(): a barrier of the threads.
template <int kMost, typename Begin, typename Sync = BlockBarrier>
__device__ inline void route_few(const RouteRows& route, Routing<kMost>& r, bool weighs,
                                 const Begin& begin, const Sync& sync = {}) {
  constexpr int kCapacity = block_rows(1), kEach = kFewExperts / kCandidates;
  const int i = static_cast<int>(threadIdx.x), warp = i / kWarp, lane = i % kWarp;
  const int rows = kMost == 1 ? 1 : route.rows;
  const int top_k = route.top_k, choices = rows * top_k, logits = route.experts + 1;
  const int shared_blocks = (rows + kCapacity - 1) / kCapacity;
  const auto logit_at = [&](int row, int at) {
    if (kMost == 1 && route.words.are_used())
      return __uint_as_float(static_cast<uint32_t>(wait_for_word(route.words.logits + at)));
    return __ldcg(route.logits + row * logits + at);
  };
  float gate = 0;
  if (weighs && warp < rows) gate = logit_at(warp, route.experts);
  if (i < shared_blocks) r.blocks[i] = {-1, i * kCapacity, min(kCapacity, rows - i * kCapacity)};
#pragma unroll 1
  for (int row = 0; row < rows && warp < kRouteWarps; ++row) {
    const uint32_t order = i < route.experts ? order_of(logit_at(row, i)) : kNone;
    r.order[i] = order;
    __syncwarp();
    const int rank = rank_among(order, i, r.order, warp * kWarp, kWarp);
    if (rank < kFewChosen) {
      r.candidate[row][warp * kFewChosen + rank] = order;
      r.index[row][warp * kFewChosen + rank] = i;
    }
    __syncwarp();
  }
  sync();
#pragma unroll 1
  for (int row = 0; row < rows && warp < kRouteWarps; ++row) {  // four threads a candidate
    const int place = i / kEach;
    const uint32_t order = r.candidate[row][place];
    int rank = rank_among(order, place, r.candidate[row], i % kEach * (kCandidates / kEach),
                          kCandidates / kEach);
#pragma unroll
    for (int offset = 1; offset < kEach; offset *= 2)
      rank += __shfl_xor_sync(0xFFFFFFFFu, rank, offset);
    if (rank >= top_k || i % kEach != 0) continue;
    const int expert = order == kNone ? rank : r.index[row][place];
    r.expert[row * top_k + rank] = expert;
    r.logit[row][rank] = logit_of(order);
    if (kMost > 1 && rows > 1) continue;
    r.blocks[1 + rank] = {expert, rank, 1};
    r.pairs[rank] = rank;
  }
  if (i == 0) r.block_count = shared_blocks + choices;  // for one row
  sync();
  if (kMost > 1 && rows > 1) {
    const bool mine = i < choices;
    const int e = mine ? r.expert[i] : 0;
    int below = 0, same = 0, rank = 0;  // pairs of lower experts, of this one, of this one before i
    if (mine) {
#pragma unroll 1
      for (int j = 0; j < choices; ++j) {
        const int other = r.expert[j];
        below += other < e ? 1 : 0;
        same += other == e ? 1 : 0;
        rank += other == e && j < i ? 1 : 0;
      }
      r.leads[i] = rank % kCapacity == 0 ? below + rank : -1;  // where a block begins
      r.pairs[below + rank] = i;
    }
    sync();
    if (mine) {
      int before = shared_blocks, all = shared_blocks;
#pragma unroll 1
      for (int j = 0; j < choices; ++j) {
        const int first = r.leads[j];
        before += first >= 0 && first < below + rank ? 1 : 0;
        all += first >= 0 ? 1 : 0;
      }
      if (rank % kCapacity == 0) r.blocks[before] = {e, below + rank, min(same - rank, kCapacity)};
      if (i == 0) r.block_count = all;
    }
    sync();
  }
  begin();
  if (weighs && warp < rows)
    weigh(lane < top_k ? r.logit[warp][lane] : 0.0f, gate, top_k, r.weight + warp * top_k,
          r.shared_weight + warp);
}

// Writes down what a block of threads found, weights included, for others.
template <int kMost, typename Sync = BlockBarrier>
__device__ inline void tell(const RouteRows& route, const GroupPairs& group,
                            const Routing<kMost>& r, const Sync& sync = {}) {
  sync();
  const int thread = static_cast<int>(threadIdx.x), choices = route.rows * route.top_k;
  if (kMost == 1 && route.words.are_used()) {
    if (thread < choices)
      send_pair(route.words.chosen + thread, __float_as_uint(r.weight[thread]),
                static_cast<uint32_t>(r.expert[thread]) + 1);
    if (thread == choices)
      send_pair(route.words.chosen + thread, __float_as_uint(r.shared_weight[0]), 1);
  }
  if (thread < choices) {
    route.expert[thread] = r.expert[thread];
    route.weight[thread] = r.weight[thread];
    group.pairs[thread] = r.pairs[thread];
  }
  if (thread < route.rows) route.shared_weight[thread] = r.shared_weight[thread];
  if (thread < r.block_count) group.blocks[thread] = r.blocks[thread];
  if (thread == 0) *group.block_count = r.block_count;
}

}  // namespace pewter::cuda
