// The weight-streaming product of many rows (stream_wide.cu). stream.cu's is its twin, bit for bit.
#pragma once

#include "backend/cuda/linear/stream.h"

namespace pewter::cuda {

constexpr int kMostWideRows = 64;  // of one pass over the weights
// Slices of k, whose sums StreamArgs::partials holds: [slices, rows, partial_outputs].
constexpr int kWideSlices = 8;

// Whether it takes these matrices and rows.
bool can_widen(const StreamArgs& args);
// Up to kMostWideRows rows, coded already where a matrix wants that; in args.partials slices of k
// may be summed by themselves, if that is faster.
void stream_wide(cudaStream_t stream, const Gpu& gpu, const StreamArgs& args);

}  // namespace pewter::cuda
