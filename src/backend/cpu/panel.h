// The layout this backend's kernels read: a *panel* is 16 outputs of a matrix over all its inputs,
// interleaved so that one 64-byte load serves all 16 (docs/decisions/0007-panels-and-int8.md).
// Outputs beyond n are zeros.
//
//   bf16   [n/16][k/2][16][2]        two inputs of 16 outputs; an odd last input is paired with 0
//   fp8    [n/16][k][16]             scales stay [n/128][k/128]
//   int4   [n/16][k/128][16][16][4]  byte (j, o, i) of a group: input 8j + i of output o in the low
//                                    nibble, 8j + 4 + i in the high one
//          scales, zeros: [n/16][k/128][16]
//   int8   [n/16][k/4][16][4]        four inputs of 16 outputs; k rounded up to 128 with zeros
//          scales: [n/16][16]
//
// f32 and f16 matrices, and bf16 ones with fewer outputs than a panel, stay canonical (dot.h).
#pragma once

#include "tensor/weight_matrix.h"

namespace pewter {

inline constexpr int kPanelLayout = 1;
inline constexpr int64_t kPanelOutputs = 16;
constexpr int64_t panels_of(int64_t outputs) {
  return (outputs + kPanelOutputs - 1) / kPanelOutputs;
}

// Whether matrices of this kind are stored in panels.
constexpr bool has_panels(const WeightSpec& spec) {
  if (spec.format == WeightFormat::kBF16) return spec.n >= kPanelOutputs;
  return spec.format == WeightFormat::kFp8Block128 || spec.format == WeightFormat::kInt4Group128 ||
         spec.format == WeightFormat::kInt8Row;
}

// Bytes of a stack in panels, and its views into memory of that size.
int64_t panel_bytes(const WeightSpec& spec);
WeightMatrix panel_matrix(const WeightSpec& spec, std::byte* memory);

// Stores canonical rows as rows row_begin … of matrix `index`; row_begin is a multiple of 128.
void store_panel_rows(WeightMatrix& w, int64_t index, int64_t row_begin, const WeightMatrix& rows);

// Row `row` of matrix `index` as k floats.
void decode_panel_row(const WeightMatrix& w, int64_t index, int64_t row, float* out);

}  // namespace pewter
