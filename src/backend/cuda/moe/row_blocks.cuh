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

// The shared expert's blocks, or the others. Values come from L2: the table may have been written
// while this kernel's block of threads was there.
struct RowBlocks {
  const RowBlock* blocks;
  const int32_t* pairs;
  int rows, top_k;
  bool shared;

  __device__ RowBlocks(const Grouping& groups, bool is_shared)
      : blocks(groups.blocks + groups.shared_blocks()),
        pairs(groups.pairs),
        rows(groups.rows),
        top_k(groups.top_k),
        shared(is_shared) {}

  __device__ RowBlock block(int number) const {
    constexpr int kCapacity = block_rows(1);
    if (shared) return {-1, number * kCapacity, min(kCapacity, rows - number * kCapacity)};
    const auto* const words = reinterpret_cast<const int32_t*>(blocks + number);
    return {__ldcg(words), __ldcg(words + 1), __ldcg(words + 2)};
  }
  // By a whole warp.
  __device__ RowList rows_of(const RowBlock& block, int lane) const {
    int mine = block.begin + lane;
    if (!shared && lane < block.count) mine = __ldcg(pairs + mine);
    RowList list;
    list.count = block.count;
#pragma unroll
    for (int r = 0; r < block_rows(1); ++r)
      list.row[r] = __shfl_sync(0xFFFFFFFFu, mine, min(r, block.count - 1));
    return list;
  }
  // The step's row of an entry of a list.
  __device__ int step_row(int entry) const { return shared ? entry : entry / top_k; }
};

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
