// The end of a unit of the experts' up products: what eight warps have summed of a gate and an up
// tile becomes a hidden value.
#pragma once

#include "backend/cuda/linear/parts.cuh"
#include "backend/cuda/moe/experts.h"

namespace pewter::cuda {

// Rows of a block, and the sums of one of the two tiles.
constexpr int kGatedRows = block_rows(1), kGatedSums = kStreamWarps * kSliceSums<kGatedRows>;

// Output n, of row r of a block that is row `row` of the shared expert's results or of the others'.
// `sums` are the gate tile's, the up tile's behind them.
__device__ inline void write_gated(const ExpertsUp& a, bool shared, const float* sums, int n, int r,
                                   int64_t row) {
  const float gate = total_of<kGatedRows>(sums, n % 16, r);
  const float up = total_of<kGatedRows>(sums + kGatedSums, n % 16, r);
  __nv_bfloat16* const out =
      shared ? a.shared_out + row * a.shared_stride : a.out + row * a.out_stride;
  out[n] = __float2bfloat16(silu(gate) * up);
}

}  // namespace pewter::cuda
