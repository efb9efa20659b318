// The ceilings' loops read and compute what they are said to.
#include "backend/cpu/cpu_ceilings.h"

#include <gtest/gtest.h>

#include "backend/cpu/peak_loops.h"
#include "base/clock.h"
#include "base/rng.h"

namespace pewter {
namespace {

TEST(PeakLoops, ReadEveryWord) {
  constexpr int64_t kWords = 4096;
  const Buffer buffer = Buffer::host(kWords * 8).value();
  auto* words = reinterpret_cast<uint64_t*>(buffer.data());
  uint64_t want = 0;
  for (int64_t i = 0; i < kWords; ++i) want ^= words[i] = random_bits(1, static_cast<uint64_t>(i));
  EXPECT_EQ(read_loop()(buffer.data(), buffer.bytes()), want);
}

// Twice the steps take about twice the time: the loop does run as often as it is told.
TEST(PeakLoops, RunAsOftenAsTold) {
  for (const Arithmetic kind : {Arithmetic::kInt8Dot, Arithmetic::kBF16Dot})
    for (const PeakLoop& loop : peak_loops(kind)) {
      const auto seconds = [&](int64_t steps) {
        double best = 1e9;
        for (int i = 0; i < 5; ++i) {
          const Stopwatch watch;
          loop.run(steps);
          best = std::min(best, watch.seconds());
        }
        return best;
      };
      EXPECT_GT(seconds(400'000), 3 * seconds(50'000)) << loop.instruction;
      EXPECT_GT(loop.operations_per_step, 0);
    }
}

TEST(CpuCeilings, AreThoseOfSomeMachine) {
  CpuCeilings ceilings(1);
  for (const Traffic traffic : {Traffic::kRead, Traffic::kCopy}) {
    EXPECT_GT(ceilings.bandwidth(traffic), 1e7) << traffic_name(traffic);
    EXPECT_LT(ceilings.bandwidth(traffic), 1e13) << traffic_name(traffic);
  }
  EXPECT_EQ(ceilings.threads(), 1);
  for (const Arithmetic kind : {Arithmetic::kInt8Dot, Arithmetic::kBF16Dot}) {
    const ArithmeticCeiling ceiling = ceilings.arithmetic(kind);
    EXPECT_GT(ceiling.flops_per_second, 1e7);
    EXPECT_LT(ceiling.flops_per_second, 1e14);
    EXPECT_FALSE(ceiling.instruction.empty());
  }
}

}  // namespace
}  // namespace pewter
