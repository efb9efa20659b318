// Units of work of products that stream weights: 16 outputs of a matrix over all of its inputs, and
// how they are shared out among blocks of threads.
#pragma once

#include <algorithm>

#include "backend/cuda/linear/parts.cuh"
#include "backend/cuda/linear/stream.h"

namespace pewter::cuda {

constexpr bool is_gated(StreamOutput output) { return output == StreamOutput::kGatedBF16; }

// Who does what. bf16 rows and coded ones are for different blocks of threads: the first
// `plain_shares` of those take the units of the first matrices, `plain_units` of them, which want
// bf16 rows; zeros where all want the same.
struct Split {
  int plain_units = 0, plain_shares = 0;
  int units = 0;  // of all matrices
  int fixed = 1;  // units a block of threads has from the start
};

// For a grid of so many blocks of threads.
inline Split split_for(const StreamArgs& args, int grid) {
  if (is_gated(args.output)) return {.units = args.w[0].tiles};
  Split split;
  int64_t plain_cost = 0, cost = 0;
  int plain_stacks = 0;
  for (int i = 0; i < args.stacks; ++i) {
    const TileStack& w = args.w[i];
    const int64_t more = static_cast<int64_t>(w.tiles) * w.blocks * w.block_bytes;
    cost += more;
    split.units += w.tiles;
    if (is_coded(w.format)) continue;
    ++plain_stacks;
    split.plain_units += w.tiles;
    plain_cost += more;
  }
  if (plain_stacks == 0 || plain_stacks == args.stacks) {
    split.plain_units = 0;
    return split;
  }
  // As many blocks of threads as let none have more than its share, if there are as many.
  const int64_t share = (cost + grid - 1) / grid;
  const int64_t each = std::max<int64_t>(1, share * split.plain_units / plain_cost);
  split.plain_shares = static_cast<int>(
      std::clamp<int64_t>((split.plain_units + each - 1) / each, 1, std::max(grid - 1, 1)));
  return split;
}

// Matrices that want bf16 rows first; then those whose units take longest, so that none is left
// for the end.
inline void sort_stacks(StreamArgs& args) {
  if (is_gated(args.output)) return;
  std::stable_sort(args.w, args.w + args.stacks, [](const TileStack& a, const TileStack& b) {
    if (is_coded(a.format) != is_coded(b.format)) return is_coded(b.format);
    return a.blocks * a.block_bytes > b.blocks * b.block_bytes;
  });
}

// What becomes of a finished sum; `up` is the second matrix's, `before` what it joins.
__device__ inline void write_sum(const StreamArgs& a, const TileStack& w, int n, int row,
                                 float value, float up, float before) {
  const int64_t at = row * a.out_stride + w.out_column + n;
  switch (a.output) {
    case StreamOutput::kGatedBF16:
      value = silu(value) * up;
      [[fallthrough]];
    case StreamOutput::kBF16:
      static_cast<__nv_bfloat16*>(a.out)[at] = __float2bfloat16(value);
      break;
    case StreamOutput::kAddF32:
      a.residual[row * a.residual_stride + w.out_column + n] = before + value;
      [[fallthrough]];
    case StreamOutput::kF32:
      static_cast<float*>(a.out)[at] = value;
      break;
  }
}

}  // namespace pewter::cuda
