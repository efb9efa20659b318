// INT8 weights with one f32 scale an output. No file stores them: the output head is made of them
// at load, from the checkpoint's floats (docs/formats/int8_row.md).
//   W[n, k] = code[n, k] · scale[n],   code in −127…127, scale = (largest magnitude of the row) /
//   127
#pragma once

#include "tensor/weight_matrix.h"

namespace pewter {

void decode_int8_row(const WeightMatrix& w, int64_t index, int64_t row, float* out);

// Quantises a row-major [n, k] matrix of finite floats into matrix `index` of w: codes to nearest,
// ties to even. A row whose largest magnitude is below 127 · 2⁻¹²⁶ is zero, and so is its scale.
void encode_int8(const float* matrix, WeightMatrix& w, int64_t index);

// The same of canonical float rows (count 1), in a new matrix of its own.
Result<WeightMatrix> encode_int8(const WeightMatrix& rows);

}  // namespace pewter
