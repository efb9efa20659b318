#include "checkpoint/data_checks.h"

#include <gtest/gtest.h>

#include <cstring>
#include <limits>
#include <vector>

#include "base/rng.h"
#include "checkpoint/linear_reader.h"

namespace pewter {
namespace {

// Every 16-bit pattern, at every place of a word and unaligned: the check must agree with isfinite.
TEST(DataChecks, AgreeWithIsfiniteForEvery16BitPattern) {
  for (const DType dtype : {DType::kBF16, DType::kF16}) {
    for (uint32_t pattern = 0; pattern < 65536; ++pattern) {
      std::array<uint16_t, 7> values = {0x8000, 0x3F7F, 0x0001, 0x7BFF, 0x3C00, 0xBC00, 0};
      const size_t at = pattern % 7;
      values[at] = static_cast<uint16_t>(pattern);
      std::array<std::byte, 15> unaligned;
      std::memcpy(unaligned.data() + 1, values.data(), 14);
      const float value =
          dtype == DType::kBF16 ? to_float(BFloat16{values[at]}) : to_float(Float16{values[at]});
      const bool finite = std::isfinite(value);
      ASSERT_EQ(find_nonfinite(std::span(unaligned).subspan(1), dtype),
                finite ? -1 : static_cast<int64_t>(at))
          << pattern;
    }
  }
}

TEST(DataChecks, FindTheFirstOfManyElements) {
  std::vector<float> values(10'000, -3.0f);
  EXPECT_EQ(find_nonfinite(std::as_bytes(std::span(values)), DType::kF32), -1);
  values[9'998] = std::numeric_limits<float>::quiet_NaN();
  values[9'999] = std::numeric_limits<float>::infinity();
  EXPECT_EQ(find_nonfinite(std::as_bytes(std::span(values)), DType::kF32), 9'998);
}

TEST(DataChecks, FindFp8NansOnly) {
  for (int code = 0; code < 256; ++code) {
    std::vector<std::byte> codes(21, std::byte{0x7E});
    codes[static_cast<size_t>(code) % 21] = static_cast<std::byte>(code);
    const bool nan = std::isnan(e4m3_to_float(static_cast<uint8_t>(code)));
    EXPECT_EQ(find_fp8_nan(codes), nan ? code % 21 : -1) << code;
  }
}

template <typename T, typename F>
void check_transpose(int64_t rows, int64_t columns, F transpose) {
  Rng rng(5);
  std::vector<T> in(static_cast<size_t>(rows * columns)), out(in.size());
  for (T& x : in) x = static_cast<T>(rng.bits());
  transpose(in.data(), rows, columns, out.data());
  for (int64_t r = 0; r < rows; ++r)
    for (int64_t c = 0; c < columns; ++c)
      ASSERT_EQ(out[static_cast<size_t>(c * rows + r)], in[static_cast<size_t>(r * columns + c)])
          << rows << "x" << columns;
}

TEST(Transpose, MovesEveryElement) {
  for (const auto& [rows, columns] : {std::pair<int64_t, int64_t>{1, 1},
                                      {16, 16},
                                      {32, 48},
                                      {33, 65},
                                      {3, 200},
                                      {200, 3},
                                      {64, 128}}) {
    check_transpose<uint32_t>(rows, columns, transpose32);
    check_transpose<uint16_t>(rows, columns, transpose16);
  }
}

}  // namespace
}  // namespace pewter
