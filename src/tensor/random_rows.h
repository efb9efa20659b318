// Pseudo-random canonical rows in any format, for benches and tests. Every eight bytes of values
// and every scale are a pure function of the seed and their index, in integers and single
// roundings, so that the host and a GPU make the same bits.
//
// Values cover their format's whole range: int4 all codes, with scales of both signs; fp8 codes
// spread evenly over ±448; int8 −127 … 127; floats are uniform.
#pragma once

#include "base/rng.h"
#include "tensor/weight_matrix.h"

namespace pewter {

struct RandomRows {
  int64_t n = 0;
  float deviation = 0;  // standard deviation of an element
  uint64_t seed = 0;
};

// Fills rows (canonical, in host memory, without zero points, not f16); random.n is not used.
void fill_random_rows(const WeightMatrix& rows, const RandomRows& random);

// What follows serves the host and kernels alike.

// Of variance 1, uniform in ±√3, from 16 bits.
constexpr float random_unit(uint64_t bits) {
  return 1.7320508f / 32768.0f * static_cast<float>(static_cast<int16_t>(bits & 0xFFFFu));
}

// The code nearest to value i of 256 that lie evenly in ±448; all of them are normal numbers.
constexpr uint8_t even_e4m3(uint64_t i) {
  const float want = (static_cast<float>(i & 0xFFu) - 127.5f) / 127.5f * 448.0f;
  const uint32_t bits = std::bit_cast<uint32_t>(want), magnitude = bits & 0x7FFFFFFFu;
  const uint32_t rounded = magnitude + 0x7FFFFu + ((magnitude >> 20) & 1u);
  return static_cast<uint8_t>(((bits >> 24) & 0x80u) | ((rounded >> 20) - (120u << 3)));
}

// Eight bytes of values, the first lowest: two floats, four bf16, eight codes.
constexpr uint64_t random_values(WeightFormat format, float deviation, uint64_t bits) {
  uint64_t values = 0;
  switch (format) {
    case WeightFormat::kF32:
      for (int i = 0; i < 2; ++i)
        values |= static_cast<uint64_t>(
                      std::bit_cast<uint32_t>(deviation * random_unit(bits >> (16 * i))))
                  << (32 * i);
      return values;
    case WeightFormat::kFp8Block128:
      for (int i = 0; i < 8; ++i)
        values |= static_cast<uint64_t>(even_e4m3(bits >> (8 * i))) << (8 * i);
      return values;
    case WeightFormat::kInt4Group128:
      return bits;
    case WeightFormat::kInt8Row:
      for (int i = 0; i < 8; ++i) {
        const uint64_t code = (bits >> (8 * i)) & 0xFFu;
        values |= (code == 0x80u ? 0x81u : code) << (8 * i);
      }
      return values;
    default:
      for (int i = 0; i < 4; ++i)
        values |= static_cast<uint64_t>(to_bfloat16(deviation * random_unit(bits >> (16 * i))).bits)
                  << (16 * i);
      return values;
  }
}

constexpr float random_scale(WeightFormat format, float deviation, uint64_t bits) {
  const float unit = random_unit(bits), size = unit < 0 ? -unit : unit;
  if (format == WeightFormat::kInt4Group128) {
    constexpr float kCodes = 4.6368f;  // deviation of code − 8, uniform in −8 … 7
    const float magnitude = deviation / kCodes * (0.75f + 0.25f * size);
    return unit < 0 ? -magnitude : magnitude;
  }
  const float codes = format == WeightFormat::kInt8Row ? 73.6f : 448.0f / 1.7320508f;
  return deviation / codes * (1.0f + 0.1f * unit);
}

// Bits of a scale of F16, BF16 or F32; a normal number of all three.
constexpr uint32_t scale_bits(DType dtype, float scale) {
  const auto bits = std::bit_cast<uint32_t>(scale);
  if (dtype == DType::kF32) return bits;
  if (dtype == DType::kBF16) return to_bfloat16(scale).bits;
  const uint32_t exponent = ((bits >> 23) & 0xFFu) - 112;  // 2^-14 … 2^15
  return ((bits >> 16) & 0x8000u) | (exponent << 10) | ((bits >> 13) & 0x3FFu);
}

// Scales are drawn from a stream of their own.
constexpr uint64_t scale_seed(uint64_t seed) { return seed ^ 0x5CA1E5u; }

}  // namespace pewter
