#include <gtest/gtest.h>

#include <vector>

#include "tensor/tensor_view.h"

namespace pewter {
namespace {

TEST(TensorView, IndexesAndSlices) {
  std::vector<float> data(24);
  for (size_t i = 0; i < data.size(); ++i) data[i] = static_cast<float>(i);
  const TensorView t(data.data(), DType::kF32, {2, 3, 4});
  EXPECT_EQ(t.elements(), 24);
  EXPECT_EQ(t.bytes(), 96);
  EXPECT_EQ(t[1][2].data_as<float>()[3], 23.0f);
  const TensorView columns = t.slice(-1, 1, 3);
  EXPECT_EQ(columns.dim(2), 2);
  EXPECT_EQ(columns[1][0].data_as<float>()[0], 13.0f);
  EXPECT_EQ(t.first(1).dim(0), 1);
}

TEST(DType, RoundsToNearestEven) {
  EXPECT_EQ(to_bfloat16(1.0f).bits, 0x3F80);
  EXPECT_EQ(to_bfloat16(std::bit_cast<float>(0x3F808000u)).bits, 0x3F80);  // tie, even below
  EXPECT_EQ(to_bfloat16(std::bit_cast<float>(0x3F818000u)).bits, 0x3F82);  // tie, even above
  EXPECT_TRUE(std::isnan(to_float(to_bfloat16(std::bit_cast<float>(0x7F800001u)))));
}

TEST(DType, HalfKeepsSubnormals) {
  EXPECT_EQ(to_float(Float16{0x0001}), 0x1p-24f);
  EXPECT_EQ(to_float(Float16{0x8400}), -0x1p-14f);
  EXPECT_EQ(to_float(Float16{0x3C00}), 1.0f);
  EXPECT_TRUE(std::isinf(to_float(Float16{0x7C00})));
}

TEST(DType, E4M3MatchesItsDefinition) {
  EXPECT_EQ(e4m3_to_float(0x48), 4.0f);
  EXPECT_EQ(e4m3_to_float(0xC4), -3.0f);
  EXPECT_EQ(e4m3_to_float(0x7E), 448.0f);
  EXPECT_EQ(e4m3_to_float(0x01), 0x1p-9f);
  EXPECT_TRUE(std::isnan(e4m3_to_float(0xFF)));
}

}  // namespace
}  // namespace pewter
