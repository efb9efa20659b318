// The weight-streaming product of many rows (stream_wide.cu). stream.cu's is its twin, bit for bit.
#pragma once

#include "backend/cuda/linear/stream.h"

namespace pewter::cuda {

constexpr int kMostWideRows = 32;  // of one pass over the weights
// Slices of k, whose sums StreamArgs::partials holds: [slices, rows, partial_outputs].
constexpr int kWideSlices = 8;

// Whether it takes these matrices and rows.
bool can_widen(const StreamArgs& args);
// Whether it is to be taken: from nine rows on, and from five on for so many bytes of weights. Few
// rows of small matrices lie in shared memory as a whole in stream.cu.
constexpr int kLeastWideRows = 5;
constexpr int64_t kLeastWideBytes = int64_t{8} << 20;
bool prefers_wide(const StreamArgs& args);
// Whether coded rows are to be halves (coded_rows.cuh): for so many rows, where all matrices that
// want coded rows are int4 with scales of 16 bits and no zero points. For fewer, integers need
// fewer instructions.
constexpr int kLeastHalvesRows = 9;
bool wants_halves(const Gpu& gpu, const StreamArgs& args);
// Up to kMostWideRows rows, coded already where a matrix wants that; in args.partials slices of k
// may be summed by themselves, if that is faster.
void stream_wide(cudaStream_t stream, const Gpu& gpu, const StreamArgs& args);

}  // namespace pewter::cuda
