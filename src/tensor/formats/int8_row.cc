#include "tensor/formats/int8_row.h"

#include <algorithm>
#include <limits>
#include <vector>

namespace pewter {
namespace {

// Loops that vectorise without fast-math, so that the disk stays what a load waits for: a maximum
// of magnitudes is one of their bits, and adding 1.5 · 2²³ leaves an f32 the integer nearest to x,
// ties to even, in its low bits.
float largest_magnitude(const float* x, int64_t k) {
  int32_t bits = 0;
  for (int64_t i = 0; i < k; ++i) bits = std::max(bits, std::bit_cast<int32_t>(x[i]) & 0x7FFFFFFF);
  return std::bit_cast<float>(bits);
}

float encode_row(const float* x, int64_t k, int8_t* codes) {
  constexpr float kRound = 0x1.8p23f;
  const float largest = largest_magnitude(x, k), scale = largest / 127.0f;
  CHECK(largest <= std::numeric_limits<float>::max(), "int8 codes of what is not finite");
  if (scale < std::numeric_limits<float>::min()) {
    std::fill(codes, codes + k, int8_t{0});
    return 0;
  }
  for (int64_t i = 0; i < k; ++i)
    codes[i] = static_cast<int8_t>(std::bit_cast<int32_t>(x[i] / scale + kRound));
  return scale;
}

}  // namespace

void decode_int8_row(const WeightMatrix& w, int64_t index, int64_t row, float* out) {
  const auto* codes = w.values[index][row].data_as<int8_t>();
  const float scale = w.scales[index].data_as<float>()[row];
  for (int64_t i = 0; i < w.k; ++i) out[i] = static_cast<float>(codes[i]) * scale;
}

void encode_int8(const float* matrix, WeightMatrix& w, int64_t index) {
  auto* scales = w.scales[index].data_as<float>();
  for (int64_t row = 0; row < w.n; ++row)
    scales[row] = encode_row(matrix + row * w.k, w.k, w.values[index][row].data_as<int8_t>());
}

Result<WeightMatrix> encode_int8(const WeightMatrix& rows) {
  TRY_ASSIGN(WeightMatrix w,
             make_canonical_weight({.format = WeightFormat::kInt8Row, .n = rows.n, .k = rows.k}));
  std::vector<float> row(static_cast<size_t>(rows.k));
  auto* scales = w.scales.data_as<float>();
  for (int64_t i = 0; i < rows.n; ++i) {
    if (rows.format == WeightFormat::kBF16) {
      const auto* from = rows.values[0][i].data_as<BFloat16>();
      for (int64_t j = 0; j < rows.k; ++j) row[static_cast<size_t>(j)] = to_float(from[j]);
    } else {
      decode_row(rows, 0, i, row.data());
    }
    scales[i] = encode_row(row.data(), rows.k, w.values[0][i].data_as<int8_t>());
  }
  return w;
}

}  // namespace pewter
