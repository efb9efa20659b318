// INT4 weights with one scale (and, in asymmetric files, one zero point) per 128 inputs of an
// output, as AutoRound and GPTQ checkpoints store them after unpacking.
//   W[n, k] = (code[n, k] − zero[n, ⌊k/128⌋]) · scale[n, ⌊k/128⌋],   code in 0…15, zero = 8 when
//   symmetric
// Scales carry a sign: AutoRound picks it so that code 0 hits the group's largest weight.
#pragma once

#include "tensor/weight_matrix.h"

namespace pewter {

inline constexpr int64_t kInt4Group = 128;

void decode_int4_row(const WeightMatrix& w, int64_t index, int64_t row, float* out);

// Quantises a row-major [n, k] matrix into matrix `index` of w (for tests, benches and converters).
// Symmetric when w has no zeros: scale = −(largest-magnitude weight)/8 with its sign, as AutoRound
// does.
void encode_int4(const float* matrix, WeightMatrix& w, int64_t index);

}  // namespace pewter
