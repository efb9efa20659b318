#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>

namespace pewter::cuda {

// Enqueues a read of [bytes] at `from`, a multiple of 16, by every multiprocessor. The memory may
// be written where its words' sum is one of all sums: memory of zeros never is.
void read_all(cudaStream_t stream, int multiprocessors, std::byte* from, int64_t bytes);

}  // namespace pewter::cuda
