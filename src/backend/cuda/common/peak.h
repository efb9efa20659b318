#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

namespace pewter::cuda {

// Enqueues chains of m16n8k16 bf16 instructions on every multiprocessor; returns the operations
// they do, a multiply-add being two. out: one float.
double matrix_peak(cudaStream_t stream, int multiprocessors, float* out);

}  // namespace pewter::cuda
