#include "base/rng.h"

#include <gtest/gtest.h>

#include <array>

namespace pewter {
namespace {

TEST(Rng, IsAPureFunctionOfSeedAndIndex) {
  EXPECT_EQ(random_bits(1, 2), random_bits(1, 2));
  EXPECT_NE(random_bits(1, 2), random_bits(2, 1));
  static_assert(random_uniform(7, 3) < 1.0f);
}

TEST(Rng, UniformsPassAChiSquareTest) {
  std::array<int, 64> buckets{};
  constexpr int kDraws = 64'000;
  for (int i = 0; i < kDraws; ++i)
    ++buckets[static_cast<size_t>(random_uniform(42, static_cast<uint64_t>(i)) * 64)];
  double chi2 = 0;
  for (const int n : buckets) chi2 += (n - 1000.0) * (n - 1000.0) / 1000.0;
  EXPECT_LT(chi2, 103.4);  // 63 degrees of freedom, p = 0.001
  EXPECT_GT(chi2, 32.0);   // p = 0.9995: too even is wrong as well
}

TEST(Rng, NeighbouringSeedsAreUncorrelated) {
  double sum = 0;
  for (uint64_t s = 0; s < 10'000; ++s)
    sum += (random_uniform(s, 0) - 0.5) * (random_uniform(s + 1, 0) - 0.5);
  EXPECT_LT(std::abs(sum / 10'000), 0.004);  // standard error 1/12/100 = 0.00083
}

}  // namespace
}  // namespace pewter
