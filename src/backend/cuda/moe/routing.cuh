// Routing of a row, and grouping of few rows, for whoever needs them.
#pragma once

#include "backend/cuda/common/kernel.cuh"
#include "backend/cuda/moe/routing.h"

namespace pewter::cuda {

constexpr int kMostExperts = 512;

// One warp routes one row; logits: the shared gate's last. expert, weight:
// the row's [top_k]; shared_weight: the row's. kLaneExperts: what a lane holds.
template <int kLaneExperts>
__device__ inline void route_row(int experts, int top_k, const float* logits, int32_t* expert,
                                 float* weight, float* shared_weight) {
  constexpr uint32_t kAll = 0xFFFFFFFFu;
  const int lane = threadIdx.x % kWarp;
  // The softmax keeps the order of the logits, and its sum falls out of the chosen ones' weights.
  // Keys are in the order of the logits; 0 is taken, or none. A NaN is never the largest: then any
  // expert will do, the row's logits tell of the fault.
  uint32_t key[kLaneExperts], mine = 0;
  const float gate = logits[experts];
#pragma unroll
  for (int i = 0; i < kLaneExperts; ++i) {
    const float logit = i * kWarp + lane < experts ? logits[i * kWarp + lane] : -INFINITY;
    const uint32_t bits = __float_as_uint(logit);
    key[i] = !(logit >= -INFINITY) || i * kWarp + lane >= experts ? 0
             : bits >> 31 != 0                                    ? ~bits
                                                                  : bits | 0x80000000u;
    mine = max(mine, key[i]);
  }
  float chosen = 0;  // lane s keeps the logit of slot s
  for (int slot = 0; slot < top_k; ++slot) {
    const uint32_t most = __reduce_max_sync(kAll, mine);
    uint32_t candidate = kAll;
    if (mine == most && most > 0)
#pragma unroll
      for (int i = kLaneExperts - 1; i >= 0; --i)  // the first of equals has the lower index
        if (key[i] == most) candidate = static_cast<uint32_t>(i * kWarp + lane);
    uint32_t taken = __reduce_min_sync(kAll, candidate);
    if (taken == candidate && taken != kAll) {
      mine = 0;
#pragma unroll
      for (int i = 0; i < kLaneExperts; ++i) {
        if (static_cast<uint32_t>(i * kWarp + lane) == taken) key[i] = 0;
        mine = max(mine, key[i]);
      }
    }
    if (taken == kAll) taken = static_cast<uint32_t>(slot);
    if (lane == slot) chosen = __uint_as_float(most >> 31 != 0 ? most & 0x7FFFFFFFu : ~most);
    if (lane == 0) expert[slot] = static_cast<int32_t>(taken);
  }
  const float largest = __shfl_sync(kAll, chosen, 0);
  const float exponential = lane < top_k ? expf(chosen - largest) : 0.0f;
  const float sum = warp_sum(exponential);
  if (lane < top_k) weight[lane] = exponential / sum;
  if (lane == 0) *shared_weight = sigmoid(gate);
}

// The grouping of few rows by the threads of a block, of which there are at least as many as
// choices: none of their experts has more than one block. `leads` is scratch. All in shared memory;
// complete after a barrier.
struct FewGroups {
  const int32_t* expert;  // [choices]
  int32_t* leads;         // [choices]
  int32_t* pairs;         // [choices]
  RowBlock* blocks;       // [choices], by rising expert
  int32_t* block_count;
};
__device__ inline void group_few(const FewGroups& g, int choices) {
  const int i = static_cast<int>(threadIdx.x);
  const bool mine = i < choices;
  const int e = mine ? g.expert[i] : 0;
  int below = 0, same = 0, rank = 0;  // pairs of lower experts, of this one, of this one before i
  if (mine) {
    for (int j = 0; j < choices; ++j) {
      const int other = g.expert[j];
      below += other < e;
      same += other == e;
      rank += other == e && j < i;
    }
    g.leads[i] = rank == 0;
    g.pairs[below + rank] = i;
  }
  __syncthreads();
  if (mine && rank == 0) {
    int index = 0, all = 0;
    for (int j = 0; j < choices; ++j) {
      index += g.leads[j] != 0 && g.expert[j] < e;
      all += g.leads[j];
    }
    g.blocks[index] = {e, below, min(same, block_rows(1))};  // more only where logits are NaN
    if (i == 0) *g.block_count = all;
  }
}

}  // namespace pewter::cuda
