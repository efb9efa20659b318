#include "tensor/formats/fp8_block128.h"

#include <algorithm>
#include <array>

namespace pewter {
namespace {

// Nearest finite E4M3 code, ties to the even code. The 127 magnitudes are monotonic in the code.
uint8_t encode_e4m3(float x) {
  static const std::array<float, 127> kMagnitudes = [] {
    std::array<float, 127> table{};
    for (size_t code = 0; code < table.size(); ++code)
      table[code] = e4m3_to_float(static_cast<uint8_t>(code));
    return table;
  }();
  const float magnitude = std::min(std::abs(x), 448.0f);
  const auto above = std::lower_bound(kMagnitudes.begin(), kMagnitudes.end(), magnitude);
  auto code = static_cast<size_t>(above - kMagnitudes.begin());
  if (code > 0) {
    const float up = kMagnitudes[code] - magnitude, down = magnitude - kMagnitudes[code - 1];
    if (down < up || (down == up && code % 2 == 1)) --code;
  }
  return static_cast<uint8_t>(code | (std::signbit(x) ? 0x80u : 0u));
}

}  // namespace

void decode_fp8_row(const WeightMatrix& w, int64_t index, int64_t row, float* out) {
  const auto* values = w.values[index][row].data_as<uint8_t>();
  const TensorView scales = w.scales[index][row / kFp8Block];
  for (int64_t begin = 0; begin < w.k; begin += kFp8Block) {
    const float scale = load_float(scales.data(), scales.dtype(), begin / kFp8Block);
    const int64_t end = std::min(w.k, begin + kFp8Block);
    for (int64_t i = begin; i < end; ++i) out[i] = e4m3_to_float(values[i]) * scale;
  }
}

void encode_fp8(const float* matrix, WeightMatrix& w, int64_t index) {
  auto* values = w.values[index].data_as<uint8_t>();
  const TensorView scales = w.scales[index];
  for (int64_t n0 = 0; n0 < w.n; n0 += kFp8Block) {
    for (int64_t k0 = 0; k0 < w.k; k0 += kFp8Block) {
      const int64_t n1 = std::min(w.n, n0 + kFp8Block), k1 = std::min(w.k, k0 + kFp8Block);
      float amax = 0;
      for (int64_t n = n0; n < n1; ++n)
        for (int64_t k = k0; k < k1; ++k) amax = std::max(amax, std::abs(matrix[n * w.k + k]));
      const TensorView scale_row = scales[n0 / kFp8Block];
      store_float(scale_row.data(), scale_row.dtype(), k0 / kFp8Block, amax / 448.0f);
      const float scale = load_float(scale_row.data(), scale_row.dtype(), k0 / kFp8Block);
      for (int64_t n = n0; n < n1; ++n)
        for (int64_t k = k0; k < k1; ++k)
          values[n * w.k + k] = scale > 0 ? encode_e4m3(matrix[n * w.k + k] / scale) : uint8_t{0};
    }
  }
}

}  // namespace pewter
