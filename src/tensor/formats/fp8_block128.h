// FP8 E4M3 weights with one scale per 128 × 128 block, as the official FP8 checkpoints store them.
//   W[n, k] = e4m3(values[n, k]) · scales[⌊n/128⌋, ⌊k/128⌋]      (the scale multiplies, despite
//   "scale_inv")
#pragma once

#include "tensor/weight_matrix.h"

namespace pewter {

inline constexpr int64_t kFp8Block = 128;
constexpr int64_t fp8_blocks(int64_t extent) { return (extent + kFp8Block - 1) / kFp8Block; }

void decode_fp8_row(const WeightMatrix& w, int64_t index, int64_t row, float* out);

// Quantises a row-major [n, k] matrix into matrix `index` of w (for tests, benches and converters):
// scale = amax / 448 of each block, rounded to w's scale type.
void encode_fp8(const float* matrix, WeightMatrix& w, int64_t index);

}  // namespace pewter
