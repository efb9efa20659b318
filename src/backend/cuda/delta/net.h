// A whole delta block of few rows of one sequence in one kernel: RMSNorm, projections, mixer,
// output projection.
#pragma once

#include "backend/cuda/common/prefetch.h"
#include "backend/cuda/delta/delta.h"
#include "backend/cuda/linear/stream.h"

namespace pewter::cuda {

constexpr int kNetWords = 4;  // counts, zero between kernels, and the number of the launch
constexpr int kMostNetRows = 8;

struct DeltaNet {
  StreamArgs in;  // kBF16; its rows are there (and coded, where a matrix wants that), or norm_x is
  const float* norm_x = nullptr;  // [rows, norm_stride]: rows to be normalised first, or null
  int64_t norm_stride = 0;
  const float* norm_weight = nullptr;
  float epsilon = 0;
  DeltaArgs mix;
  StreamArgs out;                // of one matrix
  Prefetch next;                 // for the kernels behind
  int32_t* words = nullptr;      // scratch [kNetWords], zero at first
  uint64_t* arrivals = nullptr;  // scratch [kMostNetRows, arrival_pairs], zero at first
  int arrival_pairs = 0;
};

// Whether the block's products and mixer may run as one kernel here.
bool can_fuse(const Gpu& gpu, const DeltaNet& net);
// Whether that kernel normalises rows itself.
bool can_norm(const DeltaNet& net, int64_t x_stride);
void delta_net(cudaStream_t stream, const Gpu& gpu, const DeltaNet& net);

}  // namespace pewter::cuda
