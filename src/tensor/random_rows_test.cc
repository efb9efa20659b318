#include "tensor/random_rows.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <vector>

namespace pewter {
namespace {

// The nearest of all codes, found by looking at each.
uint8_t nearest_e4m3(float want) {
  uint8_t nearest = 0;
  float best = INFINITY;
  for (int code = 0; code < 256; ++code) {
    const float off = std::fabs(e4m3_to_float(static_cast<uint8_t>(code)) - want);
    if (!(off < best)) continue;  // never for NaN
    best = off;
    nearest = static_cast<uint8_t>(code);
  }
  return nearest;
}

TEST(RandomRows, Fp8CodesAreTheNearestToEvenValues) {
  for (int i = 0; i < 256; ++i) {
    const float want = (static_cast<float>(i) - 127.5f) / 127.5f * 448.0f;
    const float have = e4m3_to_float(even_e4m3(static_cast<uint64_t>(i)));
    EXPECT_EQ(std::fabs(have - want), std::fabs(e4m3_to_float(nearest_e4m3(want)) - want)) << i;
  }
}

TEST(RandomRows, ScalesKeepTheirValueInEveryType) {
  for (const float scale : {0.01f, -0.37f, 1.5f, -0.0001f}) {
    const auto bits = [&](DType dtype) { return static_cast<uint16_t>(scale_bits(dtype, scale)); };
    EXPECT_EQ(std::bit_cast<float>(scale_bits(DType::kF32, scale)), scale);
    EXPECT_NEAR(to_float(Float16{bits(DType::kF16)}), scale, std::fabs(scale) / 1024);
    EXPECT_NEAR(to_float(BFloat16{bits(DType::kBF16)}), scale, std::fabs(scale) / 256);
  }
}

// 7 rows of 130 inputs end within a word; what is behind them stays.
TEST(RandomRows, FillsItsRowsAndNothingElse) {
  const WeightSpec spec{.format = WeightFormat::kInt8Row, .n = 7, .k = 130};
  std::vector<std::byte> memory(static_cast<size_t>(canonical_bytes(spec)) + 16, std::byte{0xAB});

  const WeightMatrix rows = canonical_weight(spec, memory.data());
  fill_random_rows(rows, {.deviation = 1, .seed = 3});
  EXPECT_EQ(rows.values.data()[7 * 130], std::byte{0xAB});
  EXPECT_EQ(memory[memory.size() - 16], std::byte{0xAB});
  std::vector<float> row(130);
  for (int64_t r = 0; r < 7; ++r) {
    decode_row(rows, 0, r, row.data());
    EXPECT_GT(std::ranges::max(row), 0.5f);
    EXPECT_LT(std::ranges::min(row), -0.5f);
    EXPECT_LT(std::ranges::max(row), 2.5f);
  }
}

}  // namespace
}  // namespace pewter
