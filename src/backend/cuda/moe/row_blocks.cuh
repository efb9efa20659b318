// Blocks of rows that meet one matrix, as kernels with a warp that requests read them: from the
// table in memory, by a warp, ahead of their use.
#pragma once

#include "backend/cuda/common/kernel.cuh"
#include "backend/cuda/moe/routing.h"
#include "backend/cuda/weight_layout.h"

namespace pewter::cuda {

// A block's rows: the shared expert's are rows of the step, others pairs of a row and a slot.
struct RowList {
  int count;
  int row[block_rows(1)];
};

// The shared expert's blocks, or the others, for a warp. Values come from L2: the table may have
// been written while this kernel's block of threads was there. A short table is in the lanes'
// registers, so that whoever asks does not wait for one thing after the other.
struct RowBlocks {
  static constexpr int kKept = 3, kKeptPairs = 2;  // of a lane: eight rows' of eight experts each
  const RowBlock* blocks;
  const int32_t* pairs;
  int rows, top_k, lane;
  bool is_short;
  bool shared = false;                                               // which
  int32_t matrix[kKept] = {}, begin[kKept] = {}, count[kKept] = {};  // kept
  int32_t kept_pairs[kKeptPairs] = {};

  // reads: by the warp that asks for blocks.
  __device__ RowBlocks(const Grouping& groups, int my_lane, bool reads)
      : blocks(groups.blocks + groups.shared_blocks()),
        pairs(groups.pairs),
        rows(groups.rows),
        top_k(groups.top_k),
        lane(my_lane),
        is_short(rows * top_k <= kKeptPairs * kWarp &&
                 groups.max_blocks - groups.shared_blocks() <= kKept * kWarp) {
    if (!reads || !is_short) return;
#pragma unroll
    for (int i = 0; i < kKept; ++i) {
      const int number = lane + i * kWarp;
      if (number >= groups.max_blocks - groups.shared_blocks()) continue;
      const RowBlock here = read(number);
      matrix[i] = here.matrix, begin[i] = here.begin, count[i] = here.count;
    }
#pragma unroll
    for (int i = 0; i < kKeptPairs; ++i) {
      const int number = lane + i * kWarp;
      if (number < rows * top_k) kept_pairs[i] = __ldcg(pairs + number);
    }
  }
  __device__ RowBlock read(int number) const {
    const auto* const words = reinterpret_cast<const int32_t*>(blocks + number);
    return {__ldcg(words), __ldcg(words + 1), __ldcg(words + 2)};
  }

  __device__ RowBlock block(int number) const {
    constexpr int kCapacity = block_rows(1);
    if (shared) return {-1, number * kCapacity, min(kCapacity, rows - number * kCapacity)};
    if (!is_short) return read(number);
    const auto from = [&](const int32_t(&all)[kKept]) {
      const int32_t mine = number < kWarp ? all[0] : number < 2 * kWarp ? all[1] : all[2];
      return __shfl_sync(0xFFFFFFFFu, mine, number % kWarp);
    };
    return {from(matrix), from(begin), from(count)};
  }
  __device__ RowList rows_of(const RowBlock& block) const {
    int mine = block.begin + lane;
    if (!shared && !is_short && lane < block.count) mine = __ldcg(pairs + mine);
    RowList list;
    list.count = block.count;
#pragma unroll
    for (int r = 0; r < block_rows(1); ++r) {
      const int at = min(r, block.count - 1), number = block.begin + at;
      if (shared || !is_short) {
        list.row[r] = __shfl_sync(0xFFFFFFFFu, mine, at);
        continue;
      }
      const int32_t pair = number < kWarp ? kept_pairs[0] : kept_pairs[1];
      list.row[r] = __shfl_sync(0xFFFFFFFFu, pair, number % kWarp);
    }
    return list;
  }
};
// The step's row of an entry of a list.
__device__ inline int step_row(bool shared, int entry, int top_k) {
  return shared ? entry : entry / top_k;
}

// What streaming bytes of a format costs beside bytes of int4 whose rows are in registers.
inline float byte_cost(WeightFormat format) { return is_coded(format) ? 1.0f : 1.5f; }

// Who does what in a kernel for many rows: the first blocks of threads have the shared expert, the
// others the routed ones, each in the measure of what it costs.
struct RoleSplit {
  float shared_cost, block_cost;  // of all the shared expert's units, of one block of rows
  int shared_units;

  // Blocks of threads of the shared expert, of `grid`, as many as let none have more units than
  // another.
  __device__ int shared_shares(int routed_blocks, int grid) const {
    const float all = shared_cost + block_cost * static_cast<float>(routed_blocks);
    const auto wanted = static_cast<int>(__fdividef(shared_cost * static_cast<float>(grid), all));
    const int each = shared_units / max(wanted, 1);
    return min(max((shared_units + each - 1) / max(each, 1), 1), grid - 1);
  }
};

}  // namespace pewter::cuda
