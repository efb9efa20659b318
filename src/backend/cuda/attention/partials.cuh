// Partial results of decode attention: of a query row and a stretch kHead weighted sums, the
// largest score in powers of two, and the sum of the weights relative to that.
#pragma once

#include "backend/cuda/attention/attention.h"
#include "backend/cuda/common/kernel.cuh"

namespace pewter::cuda {

constexpr int kHead = 256;           // dimensions
constexpr int kPartial = kHead + 4;  // floats: a multiple of 16 bytes
constexpr unsigned kAllLanes = 0xFFFFFFFFu;

// The stretches of each row added, gated and coded.
void merge(cudaStream_t stream, const AttendArgs& args);

}  // namespace pewter::cuda
