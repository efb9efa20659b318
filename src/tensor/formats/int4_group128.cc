#include "tensor/formats/int4_group128.h"

#include <algorithm>

namespace pewter {
namespace {

void store_scale(const TensorView& row, int64_t i, float value) {
  if (row.dtype() != DType::kF16) return store_float(row.data(), row.dtype(), i, value);
  // Round to nearest half by way of the float whose low 13 mantissa bits are dropped; subnormals by
  // division.
  const float magnitude = std::abs(value);
  uint16_t bits = 0;
  if (magnitude < 0x1p-14f) {
    bits = static_cast<uint16_t>(std::nearbyint(magnitude * 0x1p24f));
  } else {
    const uint32_t word = std::bit_cast<uint32_t>(std::min(magnitude, 65504.0f)) - (112u << 23);
    bits = static_cast<uint16_t>((word + 0xFFFu + ((word >> 13) & 1u)) >> 13);
  }
  row.data_as<Float16>()[i] = {static_cast<uint16_t>(bits | (std::signbit(value) ? 0x8000u : 0u))};
}

}  // namespace

void decode_int4_row(const WeightMatrix& w, int64_t index, int64_t row, float* out) {
  const auto* values = w.values[index][row].data_as<uint8_t>();
  const TensorView scales = w.scales[index][row];
  const uint8_t* zeros = w.zeros.defined() ? w.zeros[index][row].data_as<uint8_t>() : nullptr;
  for (int64_t group = 0; group < w.k / kInt4Group; ++group) {
    const float scale = load_float(scales.data(), scales.dtype(), group);
    const int zero = zeros != nullptr ? zeros[group] : 8;
    for (int64_t i = group * kInt4Group; i < (group + 1) * kInt4Group; ++i) {
      const int code = (values[i / 2] >> (i % 2 * 4)) & 15;
      out[i] = static_cast<float>(code - zero) * scale;
    }
  }
}

void encode_int4(const float* matrix, WeightMatrix& w, int64_t index) {
  for (int64_t row = 0; row < w.n; ++row) {
    auto* values = w.values[index][row].data_as<uint8_t>();
    const TensorView scales = w.scales[index][row];
    for (int64_t group = 0; group < w.k / kInt4Group; ++group) {
      const float* x = matrix + row * w.k + group * kInt4Group;
      const auto [low, high] = std::minmax_element(x, x + kInt4Group);
      float scale = 0;
      int zero = 8;
      if (w.zeros.defined()) {
        const float span = std::max(*high, 0.0f) - std::min(*low, 0.0f);
        scale = std::max(span / 15.0f, 1e-5f);
        zero = static_cast<int>(
            std::clamp(std::nearbyint(-std::min(*low, 0.0f) / scale), 0.0f, 15.0f));
        w.zeros[index][row].data_as<uint8_t>()[group] = static_cast<uint8_t>(zero);
      } else {
        const float extreme = std::abs(*low) > std::abs(*high) ? *low : *high;
        scale = -extreme / 8.0f;
        if (std::abs(scale) < 1e-5f) scale = std::signbit(scale) ? -1e-5f : 1e-5f;
      }
      store_scale(scales, group, scale);
      scale = load_float(scales.data(), scales.dtype(), group);
      for (int64_t i = 0; i < kInt4Group; ++i) {
        const float code = std::nearbyint(x[i] / scale) + static_cast<float>(zero);
        const auto nibble = static_cast<unsigned>(std::clamp(code, 0.0f, 15.0f));
        uint8_t& byte = values[(group * kInt4Group + i) / 2];
        byte = static_cast<uint8_t>(i % 2 == 0 ? nibble : (byte & 15u) | (nibble << 4));
      }
    }
  }
}

}  // namespace pewter
