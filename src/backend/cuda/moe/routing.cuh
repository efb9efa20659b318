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

// A warp weighs a row's choice: lane s has the logit of slot s, and is given its weight.
__device__ inline float weigh(float chosen, int top_k) {
  const int lane = threadIdx.x % kWarp;
  const float largest = __shfl_sync(0xFFFFFFFFu, chosen, 0);
  const float exponential = lane < top_k ? expf(chosen - largest) : 0.0f;
  return exponential / warp_sum(exponential);
}
__device__ inline void weigh(float chosen, float gate, int top_k, float* weight,
                             float* shared_weight) {
  const int lane = threadIdx.x % kWarp;
  const float own = weigh(chosen, top_k);
  if (lane < top_k) weight[lane] = own;
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
  const auto logit_at = [&](int row, int at) { return __ldcg(route.logits + row * logits + at); };
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
template <typename Sync = BlockBarrier>
__device__ inline void tell(const RouteRows& route, const GroupPairs& group,
                            const Routing<kFewRouted>& r, const Sync& sync = {}) {
  sync();
  const int thread = static_cast<int>(threadIdx.x), choices = route.rows * route.top_k;
  if (thread < choices) {
    route.expert[thread] = r.expert[thread];
    route.weight[thread] = r.weight[thread];
    group.pairs[thread] = r.pairs[thread];
  }
  if (thread < route.rows) route.shared_weight[thread] = r.shared_weight[thread];
  if (thread < r.block_count) group.blocks[thread] = r.blocks[thread];
  if (thread == 0) *group.block_count = r.block_count;
}

// What a lane knows of the slot that has its number.
struct Choice {
  int32_t expert;
  float logit;
};
// One row whose logits arrive as words, routed by one warp, for itself as well; its first `slots`
// slots.
//
// Lane l has experts 8l … 8l + 7. A turn finds the largest logit of all: each lane gives its own,
// and meanwhile learns which of its experts have that and what comes below it. Who has the largest
// is one more sum, seen a turn later, that counts those who do; only if they are more than one are
// they looked for. All of it runs once on what has come by the first look, so that the instructions
// are there when the last word is. What has not come, and a NaN, is the number of its expert, less
// than any logit.
__device__ inline Choice hear_choice(const RouteRows& route, int slots) {
  constexpr uint32_t kAll = 0xFFFFFFFFu, kLeast = 0x007FFFFFu;  // order_of(−∞)
  constexpr uint32_t kEach = RouteWords::kTogether, kCount = 1 << 16;
  static_assert(kEach * kWarp == kFewExperts && kFewChosen <= kEach, "no lane runs out of experts");
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  const uint32_t first = kEach * lane;
  const uint32_t* const at = route.words.logits + first / 2;
#pragma unroll 1
  for (bool rehearses = true;; rehearses = false) {
    uint32_t key[kEach], mine = first + kEach - 1, least = first < route.experts ? 0 : 1;
#pragma unroll
    for (uint32_t i = 0; i < kEach; ++i) key[i] = first + i;
    bool waits;
    do {
      if (least == 0) {
        const uint4 four = look_at_four(at), more = look_at_four(at + route.experts / 2);
        const uint32_t word[kEach] = {four.x, four.y, four.z, four.w,
                                      more.x, more.y, more.z, more.w};
        least = word[0], mine = 0;
#pragma unroll
        for (uint32_t i = 0; i < kEach; ++i) {
          least = min(least, word[i]);
          key[i] = max(word[i], first + i);
          mine = max(mine, key[i]);
          settle(key[i]);
        }
        settle(mine);
      }
      waits = __any_sync(kAll, least == 0) != 0;
    } while (waits && !rehearses);
    uint32_t last = 0, part = 0, chosen = 0, index = 0;  // the latter two: of the lane's slot
    int slot = 0;
#pragma unroll 1
    for (;;) {
      const uint32_t most = __reduce_max_sync(kAll, mine), found = __reduce_add_sync(kAll, part);
      // Two chains of instructions. Relative to `mine`, what is below it is larger than the rest.
      uint32_t equal[2] = {}, lower[2] = {};
#pragma unroll
      for (uint32_t i = 0; i < kEach; ++i) {
        equal[i % 2] += key[i] == mine ? kCount + i : 0;
        lower[i % 2] = max(lower[i % 2], key[i] - mine);
      }
      const bool is_mine = mine == most;
      part = is_mine ? equal[0] + equal[1] + first : 0;
      mine += is_mine ? max(lower[0], lower[1]) : 0;
      settle(part, mine);
      if (found / kCount == 1) {
        if (lane == slot) chosen = last, index = found % kCount;
        ++slot;
      } else {
        uint32_t from = 0;
        settle(from);
#pragma unroll 1
        for (uint32_t left = found / kCount; left > 0 && slot < slots; --left, ++slot) {
          uint32_t next = kAll;
#pragma unroll
          for (uint32_t i = kEach; i-- > 0;)
            if (key[i] == last && first + i >= from) next = first + i;
          next = __reduce_min_sync(kAll, next);
          if (lane == slot) chosen = last, index = next;
          from = next + 1;
        }
      }
      if (slot >= slots) break;
      last = most;
    }
    if (waits) continue;
    return {static_cast<int32_t>(chosen < kLeast ? lane : index), logit_of(chosen)};
  }
}

// Tells others of such a choice, of all slots, by its warp.
__device__ inline void tell_choice(const RouteRows& route, const GroupPairs& group,
                                   const Choice& choice) {
  const int lane = static_cast<int>(threadIdx.x) % kWarp, top_k = route.top_k;
  const bool shared = lane == top_k;
  float weight = weigh(choice.logit, top_k);
  if (lane > top_k) return;
  if (shared) weight = sigmoid(logit_of(wait_for_word(route.words.logits + route.experts)));
  send_pair(route.words.chosen + lane, __float_as_uint(weight),
            shared ? 1 : static_cast<uint32_t>(choice.expert) + 1);
  (shared ? route.shared_weight : route.weight + lane)[0] = weight;
  group.blocks[shared ? 0 : 1 + lane] = {shared ? -1 : choice.expert, shared ? 0 : lane, 1};
  if (shared) {
    *group.block_count = 1 + top_k;
  } else {
    route.expert[lane] = choice.expert;
    group.pairs[lane] = lane;
  }
}

}  // namespace pewter::cuda
