#include "base/result.h"

#include <gtest/gtest.h>

#include <memory>

namespace pewter {
namespace {

Result<int> half(int x) {
  if (x % 2 != 0) return Error{ErrorCode::kInvalidArgument, str_cat(x, " is odd")};
  return x / 2;
}

Result<int> quarter(int x) {
  TRY_ASSIGN(const int h, half(x));
  TRY_ASSIGN(const int q, half(h));
  return q;
}

Status check_quarter(int x) {
  TRY(quarter(x));
  return {};
}

TEST(Result, CarriesValueOrErrorThroughTry) {
  EXPECT_EQ(quarter(12).value(), 3);
  EXPECT_EQ(quarter(6).error().message, "3 is odd");
  EXPECT_TRUE(check_quarter(8).has_value());
  EXPECT_EQ(check_quarter(7).error().code, ErrorCode::kInvalidArgument);
}

TEST(Result, MovesItsValue) {
  Result<std::unique_ptr<int>> result = std::make_unique<int>(5);
  const std::unique_ptr<int> owned = std::move(result).value();
  EXPECT_EQ(*owned, 5);
}

TEST(ResultDeathTest, ValueOfAnErrorAborts) { EXPECT_DEATH(half(1).value(), "1 is odd"); }

TEST(StrCat, PrintsNumbersExactly) {
  EXPECT_EQ(str_cat("a", 1, ' ', 2.5, " ", -7L, true), "a1 2.5 -7true");
}

}  // namespace
}  // namespace pewter
