#include <gtest/gtest.h>

#include <vector>

#include "base/rng.h"
#include "tensor/formats/fp8_block128.h"
#include "tensor/formats/int4_group128.h"
#include "tensor/formats/int8_row.h"

namespace pewter {
namespace {

std::vector<float> random_matrix(int64_t n, int64_t k, uint64_t seed) {
  Rng rng(seed);
  std::vector<float> out(static_cast<size_t>(n * k));
  for (float& x : out) x = rng.normal() * 0.05f;
  return out;
}

// W = (code − 8)·s for the word 0xC3F98710, and with s negative (docs/formats/int4_group128.md, the
// worked example).
TEST(Int4, DecodesSignedScalesAndZeroPoints) {
  auto w = make_canonical_weight({.format = WeightFormat::kInt4Group128,
                                  .n = 1,
                                  .k = 128,
                                  .scale_dtype = DType::kF16,
                                  .has_zeros = true})
               .value();
  const uint32_t word = 0xC3F98710u;
  std::memset(w.values.data(), 0x88, 64);
  std::memcpy(w.values.data(), &word, 4);
  std::vector<float> row(128);
  const auto decode = [&](uint16_t scale_bits, uint8_t zero) {
    w.scales.data_as<Float16>()[0] = {scale_bits};
    w.zeros.data_as<uint8_t>()[0] = zero;
    decode_row(w, 0, 0, row.data());
    return std::vector<float>(row.begin(), row.begin() + 8);
  };
  EXPECT_EQ(decode(0x3400, 8), (std::vector<float>{-2, -1.75, -0.25, 0, 0.25, 1.75, -1.25, 1}));
  EXPECT_EQ(decode(0xB400, 8), (std::vector<float>{2, 1.75, 0.25, -0.0f, -0.25, -1.75, 1.25, -1}));
  EXPECT_EQ(decode(0x3400, 5), (std::vector<float>{-1.25, -1, 0.5, 0.75, 1, 2.5, -0.5, 1.75}));
}

TEST(Fp8, DecodesWithItsBlocksScale) {
  auto w =
      make_canonical_weight(
          {.format = WeightFormat::kFp8Block128, .n = 201, .k = 301, .scale_dtype = DType::kBF16})
          .value();
  EXPECT_EQ(w.scales.dim(1), 2);
  EXPECT_EQ(w.scales.dim(2), 3);
  std::memset(w.values.data(), 0x48, static_cast<size_t>(w.values.bytes()));
  for (int64_t i = 0; i < 6; ++i)
    w.scales.data_as<BFloat16>()[i] = to_bfloat16(0.0078125f * static_cast<float>(i + 1));
  std::vector<float> row(301);
  decode_row(w, 0, 200, row.data());
  EXPECT_EQ(row[300], 0.03125f * 6);  // element [200, 300]: scale [1, 2]
  EXPECT_EQ(row[127], 0.03125f * 4);
}

TEST(Int8Row, CodesToNearestTiesToEven) {
  const std::vector<float> matrix = {
      127,    -127,    0.5f, 1.5f,  -2.5f, 63.49f,  // scale 1
      0,      -0.0f,   0,    0,     0,     0,       // a row of nothing
      -4,     2,       1,    0.01f, -1,    4,       // scale 4 / 127
      1e-37f, -1e-38f, 0,    0,     0,     0,       // scale below the normal numbers: nothing
  };
  auto w = make_canonical_weight({.format = WeightFormat::kInt8Row, .n = 4, .k = 6}).value();
  encode_int8(matrix.data(), w, 0);
  const auto codes = [&](int64_t row) {
    const auto* at = w.values[0][row].data_as<int8_t>();
    return std::vector<int>(at, at + 6);
  };
  EXPECT_EQ(codes(0), (std::vector<int>{127, -127, 0, 2, -2, 63}));
  EXPECT_EQ(codes(1), std::vector<int>(6));
  EXPECT_EQ(codes(2), (std::vector<int>{-127, 64, 32, 0, -32, 127}));
  EXPECT_EQ(codes(3), std::vector<int>(6));
  const auto* scales = w.scales.data_as<float>();
  EXPECT_EQ(std::vector<float>(scales, scales + 4), (std::vector<float>{1, 0, 4.0f / 127, 0}));
  std::vector<float> row(6);
  decode_row(w, 0, 2, row.data());
  EXPECT_EQ(row[1], 64 * (4.0f / 127));
  decode_row(w, 0, 1, row.data());
  EXPECT_EQ(row, std::vector<float>(6));
}

TEST(Int8Row, OfStoredFloats) {
  const auto matrix = random_matrix(3, 70, 9);
  auto stored = make_canonical_weight({.format = WeightFormat::kBF16, .n = 3, .k = 70}).value();
  std::vector<float> exact(matrix.size());
  for (size_t i = 0; i < matrix.size(); ++i) {
    stored.values.data_as<BFloat16>()[i] = to_bfloat16(matrix[i]);
    exact[i] = to_float(to_bfloat16(matrix[i]));
  }
  auto want = make_canonical_weight({.format = WeightFormat::kInt8Row, .n = 3, .k = 70}).value();
  encode_int8(exact.data(), want, 0);
  const auto have = encode_int8(stored).value();
  EXPECT_EQ(have.format, WeightFormat::kInt8Row);
  EXPECT_EQ(std::memcmp(have.values.data(), want.values.data(), 3 * 70), 0);
  EXPECT_EQ(std::memcmp(have.scales.data(), want.scales.data(), 3 * 4), 0);
}

TEST(Int8RowDeathTest, RefusesWhatIsNotFinite) {
  auto w = make_canonical_weight({.format = WeightFormat::kInt8Row, .n = 1, .k = 2}).value();
  for (const float bad : {INFINITY, NAN, -INFINITY}) {
    const std::vector<float> row = {1, bad};
    EXPECT_DEATH(encode_int8(row.data(), w, 0), "not finite");
  }
}

class RoundTrip : public testing::TestWithParam<WeightSpec> {};

TEST_P(RoundTrip, DecodeOfEncodeStaysInBounds) {
  const WeightSpec spec = GetParam();
  auto w = make_canonical_weight(spec).value();
  std::vector<float> row(static_cast<size_t>(spec.k));
  for (int64_t index = 0; index < spec.count; ++index) {
    const auto matrix = random_matrix(spec.n, spec.k, static_cast<uint64_t>(index) + 3);
    if (spec.format == WeightFormat::kFp8Block128)
      encode_fp8(matrix.data(), w, index);
    else if (spec.format == WeightFormat::kInt8Row)
      encode_int8(matrix.data(), w, index);
    else
      encode_int4(matrix.data(), w, index);
    for (int64_t n = 0; n < spec.n; ++n) {
      decode_row(w, index, n, row.data());
      for (int64_t k = 0; k < spec.k; ++k) {
        const float x = matrix[static_cast<size_t>(n * spec.k + k)],
                    y = row[static_cast<size_t>(k)];
        // fp8: half a step of 3 mantissa bits, or half the smallest subnormal of a block with amax
        // ≤ 0.2. int4: the largest weight of a normal group is ≤ 0.1733·… so a step is ≤ 0.0221,
        // and codes clip at 7.
        // int8: half a step of a largest weight ≤ 0.25.
        const float bound = spec.format == WeightFormat::kInt8Row ? 0.25f / 254 * 1.01f
                            : spec.format == WeightFormat::kFp8Block128
                                ? std::max(std::abs(x) / 16.0f * 1.01f, 0.2f / 448 * 0x1p-10f)
                                : 0.0221f * (spec.has_zeros ? 0.6f : 1.01f);
        ASSERT_LE(std::abs(x - y), bound) << "[" << n << ", " << k << "] " << x << " " << y;
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(
    Formats, RoundTrip,
    testing::Values(
        WeightSpec{.format = WeightFormat::kInt4Group128,
                   .n = 5,
                   .k = 256,
                   .count = 3,
                   .scale_dtype = DType::kF16},
        WeightSpec{.format = WeightFormat::kInt4Group128,
                   .n = 5,
                   .k = 256,
                   .count = 2,
                   .scale_dtype = DType::kF16,
                   .has_zeros = true},
        WeightSpec{
            .format = WeightFormat::kInt4Group128, .n = 3, .k = 128, .scale_dtype = DType::kF32},
        WeightSpec{.format = WeightFormat::kInt8Row, .n = 7, .k = 131, .count = 2},
        WeightSpec{.format = WeightFormat::kFp8Block128,
                   .n = 130,
                   .k = 257,
                   .count = 2,
                   .scale_dtype = DType::kBF16},
        WeightSpec{
            .format = WeightFormat::kFp8Block128, .n = 8, .k = 40, .scale_dtype = DType::kF32}));

TEST(WeightBytes, CountWhatTheModelNeeds) {
  // 4.125 bits a weight: symmetric zero points count nothing.
  EXPECT_EQ(weight_bytes({.format = WeightFormat::kInt4Group128,
                          .n = 1024,
                          .k = 3072,
                          .scale_dtype = DType::kF16}),
            1024 * 3072 * 4.125 / 8);
  EXPECT_EQ(weight_bytes({.format = WeightFormat::kFp8Block128,
                          .n = 1024,
                          .k = 3072,
                          .scale_dtype = DType::kBF16}),
            1024 * 3072 + 8 * 24 * 2);
  EXPECT_EQ(weight_bytes({.format = WeightFormat::kInt8Row, .n = 3, .k = 5, .count = 7}),
            7 * 3 * (5 + 4));
  EXPECT_EQ(weight_bytes({.format = WeightFormat::kBF16, .n = 3, .k = 5, .count = 7}), 210);
}

}  // namespace
}  // namespace pewter
