// Random canonical rows (tensor/random_rows.h) made on the GPU, for benches of models that would
// take minutes to make on the host.
#pragma once

#include <cuda_runtime_api.h>

#include "tensor/random_rows.h"

namespace pewter::cuda {

// Enqueues the filling of rows (canonical, in device memory at multiples of 8 bytes) with the bits
// fill_random_rows makes.
void random_rows(cudaStream_t stream, const WeightMatrix& rows, const RandomRows& random);

}  // namespace pewter::cuda
