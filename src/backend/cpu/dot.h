// dot_rows: some rows of a weight matrix times some input vectors, the inner product every
// projection, expert and attention score of the fast CPU path goes through.
//
// The order of a sum is part of the contract: one vector accumulator per (input row, output) walks
// the inputs in units of kInputUnit, then its lanes are added. That order depends on k and on the
// format alone, so a result has the same bits for every m, however the outputs are cut into tiles.
#pragma once

#include "tensor/weight_matrix.h"

namespace pewter {

// Input vectors are zero-padded to a multiple of this; int4's two nibbles of a byte lie half a unit
// apart.
inline constexpr int64_t kInputUnit = 32;
constexpr int64_t padded_inputs(int64_t k) {
  return (k + kInputUnit - 1) / kInputUnit * kInputUnit;
}

// Rows of one canonical matrix: where their parts lie.
struct MatrixRows {
  WeightFormat format = WeightFormat::kBF16;
  int64_t k = 0;
  const std::byte* values = nullptr;
  int64_t row_bytes = 0;
  const std::byte* scales = nullptr;  // of a row for int4, of 128 rows for fp8
  DType scale_dtype = DType::kF32;
  int64_t scale_row_bytes = 0;
  const uint8_t* zeros = nullptr;  // null: 8
  int64_t zero_row_bytes = 0;
};
MatrixRows rows_of(const WeightMatrix& w, int64_t index);

// Formats whose inputs must be given in split order: the even inputs of each unit, then its odd
// ones, as the nibbles of int4 bytes are found.
constexpr bool wants_split_inputs(WeightFormat format) {
  return format == WeightFormat::kInt4Group128;
}

// Scratch of one worker.
struct DotScratch {
  static constexpr int64_t kTileRows = 16;      // weight rows decoded at a time for many inputs
  static constexpr int64_t kTileInputs = 1024;  // … and this many of their inputs: 64 KiB
  static constexpr int64_t kInputRows = 128;    // input rows that meet a tile before the next one
  static constexpr int64_t kMaxLanes = 16;
  float* tile = nullptr;      // [kTileRows, kTileInputs]
  float* partials = nullptr;  // [kInputRows, kTileRows, kMaxLanes]
  float* scales = nullptr;    // [kTileRows, ⌈widest k / 128⌉]
};

struct DotArgs {
  MatrixRows w;
  int64_t begin = 0, end = 0;       // rows of w
  const float* const* x = nullptr;  // [m] vectors of padded_inputs(k), in the format's input order
  int64_t m = 0;
  float* out = nullptr;  // out[r · out_stride + i − begin]
  int64_t out_stride = 0;
  DotScratch scratch;
};
void dot_rows(const DotArgs& args);

}  // namespace pewter
