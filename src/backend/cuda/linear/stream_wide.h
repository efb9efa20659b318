// The weight-streaming product of many rows (stream_wide.cu). stream.cu's is its twin, bit for bit.
#pragma once

#include "backend/cuda/linear/stream.h"

namespace pewter::cuda {

constexpr int kMostWideRows = 32;  // of one pass over the weights
// Slices of k, whose sums StreamArgs::partials holds: [slices, rows, partial_outputs].
constexpr int kWideSlices = 8;

// It is the faster one from so many rows on.
constexpr int kLeastWideRows = 5;
constexpr int kLeastHalvesRows = 9;

// Whether it takes these matrices and rows.
bool can_widen(const StreamArgs& args);
// Whether coded rows are to be halves (coded_rows.cuh): all matrices that want coded rows are int4
// with scales of 16 bits and no zero points, and the product will be this one.
bool wants_halves(const Gpu& gpu, const StreamArgs& args);
// Up to kMostWideRows rows, coded already where a matrix wants that; in args.partials slices of k
// may be summed by themselves, if that is faster.
void stream_wide(cudaStream_t stream, const Gpu& gpu, const StreamArgs& args);

}  // namespace pewter::cuda
