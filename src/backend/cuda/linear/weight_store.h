// Canonical weight rows into the tiled layout (weight_layout.h), on the GPU.
#pragma once

#include <cuda_runtime_api.h>

#include "backend/cuda/weight_layout.h"

namespace pewter::cuda {

// Elements of one matrix of a stack in the tiled layout.
struct TiledSizes {
  int64_t value_bytes = 0, scales = 0, zeros = 0;
};
TiledSizes tiled_sizes(const WeightSpec& spec);
int64_t tiled_bytes(const WeightSpec& spec);  // of the whole stack, parts aligned to 256

// The views of a stack over memory of tiled_bytes: values [count, value_bytes] u8, scales [count,
// scales] in the spec's type, zeros [count, zeros] u8.
WeightMatrix tiled_weight(const WeightSpec& spec, std::shared_ptr<const Buffer> memory);

// Enqueues the packing of rows (canonical, in device memory) as rows row_begin … of matrix `index`;
// row_begin is a multiple of 128. Outputs beyond w.n become zeros with the last rows.
void pack_rows(cudaStream_t stream, const WeightMatrix& w, int64_t index, int64_t row_begin,
               const WeightMatrix& rows);

}  // namespace pewter::cuda
