// dot_rows: some rows of a plain matrix times some input vectors. Attention scores, the products of
// the delta rule's chunks and canonical matrices (f32, f16, narrow bf16) go through it; all other
// weights are panels (panel_rows.h).
//
// The order of a sum is part of the contract: one vector accumulator per (input row, output) walks
// the inputs in units of kInputUnit, then its lanes are added. That order depends on k and on the
// format alone, so a result has the same bits for every m, however the outputs are cut into tiles.
#pragma once

#include "tensor/weight_matrix.h"

namespace pewter {

// Input vectors are zero-padded to a multiple of this.
inline constexpr int64_t kInputUnit = 32;
constexpr int64_t padded_inputs(int64_t k) {
  return (k + kInputUnit - 1) / kInputUnit * kInputUnit;
}

// Rows of one canonical matrix of f32, f16 or bf16.
struct MatrixRows {
  WeightFormat format = WeightFormat::kBF16;
  int64_t k = 0;
  const std::byte* values = nullptr;
  int64_t row_bytes = 0;
};
MatrixRows rows_of(const WeightMatrix& w, int64_t index);

struct DotArgs {
  MatrixRows w;
  int64_t begin = 0, end = 0;       // rows of w
  const float* const* x = nullptr;  // [m] vectors of padded_inputs(k)
  int64_t m = 0;
  float* out = nullptr;  // out[r · out_stride + i − begin]
  int64_t out_stride = 0;
};
void dot_rows(const DotArgs& args);

}  // namespace pewter
