// Products with few outputs, cut along k over the whole GPU: each slice leaves partial sums for the
// next kernel to add. The router's.
#pragma once

#include "backend/cuda/linear/stream.h"

namespace pewter::cuda {

inline constexpr int kSlices = 8;

struct SlicedArgs {
  TileStack w[2];                    // outputs side by side, at their out_column
  const __nv_bfloat16* x = nullptr;  // [rows, x_stride]
  int64_t x_stride = 0;
  int rows = 0;
  float* out = nullptr;  // [kSlices, rows, out_stride]
  int64_t out_stride = 0;
};
void sliced_product(cudaStream_t stream, const SlicedArgs& args);

}  // namespace pewter::cuda
