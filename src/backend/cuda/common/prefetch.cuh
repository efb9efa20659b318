// Weights on their way into the L2 cache, for kernels that come later.
#pragma once

#include "backend/cuda/common/bulk.cuh"
#include "backend/cuda/common/prefetch.h"

namespace pewter::cuda {

// The share of one of `shares` threads. What other kernels stream meanwhile leaves the cache before
// it does (copy_bulk_once).
__device__ inline void prefetch(const Prefetch& list, int index, int shares) {
  if constexpr (!kBulkCopies) return;
  int piece = index;
#pragma unroll 1
  for (int i = 0; i < list.count; ++i) {
    const int pieces = (list.bytes[i] + kPrefetchPiece - 1) / kPrefetchPiece;
#pragma unroll 1
    for (; piece < pieces; piece += shares) {
      const int at = piece * kPrefetchPiece;
      asm volatile("cp.async.bulk.prefetch.L2.global [%0], %1;" ::"l"(list.from[i] + at),
                   "r"(min(list.bytes[i] - at, kPrefetchPiece)));
    }
    piece -= pieces;
  }
}

}  // namespace pewter::cuda
