// Blocks of rows that meet one matrix, as kernels with a warp that requests read them: from the
// table in memory, by a warp, ahead of their use.
#pragma once

#include "backend/cuda/common/kernel.cuh"
#include "backend/cuda/moe/routing.h"

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

}  // namespace pewter::cuda
