// Canonical weight rows into the tiled layout (weight_layout.h), on the GPU.
#pragma once

#include <cuda_runtime_api.h>

#include "backend/cuda/weight_layout.h"

namespace pewter::cuda {

int64_t tiled_bytes(const WeightSpec& spec);  // of the whole stack

// The stack over zeroed memory of tiled_bytes: values [count, bytes of a matrix] u8. Scales and
// zeros lie among them; their views are empty and only tell that they are there, and in which type.
// int8's scales are behind them, [count, n padded to 16] f32.
WeightMatrix tiled_weight(const WeightSpec& spec, std::shared_ptr<const Buffer> memory);

// Enqueues the packing of rows (canonical, in device memory) as rows row_begin … of matrix `index`;
// row_begin is a multiple of 128. Outputs beyond w.n become zeros with the last rows.
void pack_rows(cudaStream_t stream, const WeightMatrix& w, int64_t index, int64_t row_begin,
               const WeightMatrix& rows);

}  // namespace pewter::cuda
