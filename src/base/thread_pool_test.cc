#include "base/thread_pool.h"

#include <gtest/gtest.h>

#include <chrono>
#include <numeric>

namespace pewter {
namespace {

TEST(ThreadPool, RunsEveryItemOnce) {
  for (const int threads : {1, 2, 5}) {
    ThreadPool pool(threads);
    EXPECT_EQ(pool.threads(), threads);
    for (const int64_t count : {0, 1, 2, 3, 1000}) {
      std::vector<int> hits(static_cast<size_t>(count), 0);
      for (int round = 0; round < 20; ++round)
        pool.parallel_for(count, [&](int64_t i) { ++hits[static_cast<size_t>(i)]; });
      for (const int n : hits) EXPECT_EQ(n, 20);
    }
  }
}

// Longer than anybody spins: workers sleep before each loop, the caller within it.
TEST(ThreadPool, SleepersWake) {
  constexpr std::chrono::milliseconds kLong{2};
  ThreadPool pool(3);
  std::atomic<int> hits{0};
  for (int round = 0; round < 20; ++round) {
    std::this_thread::sleep_for(kLong);
    const auto caller = std::this_thread::get_id();
    pool.parallel_for(12, [&](int64_t) {
      if (std::this_thread::get_id() != caller) std::this_thread::sleep_for(kLong);
      ++hits;
    });
    EXPECT_EQ(hits.load(), 12 * (round + 1));
  }
}

TEST(ThreadPool, TwoPoolsWorkAtOnce) {
  ThreadPool a(2), b(2);
  std::atomic<int> sum{0};
  std::thread other([&] {
    for (int round = 0; round < 100; ++round) b.parallel_for(10, [&](int64_t) { ++sum; });
  });
  for (int round = 0; round < 100; ++round) a.parallel_for(10, [&](int64_t) { ++sum; });
  other.join();
  EXPECT_EQ(sum.load(), 2000);
}

TEST(ThreadPool, AvailableThreadsIsPositive) { EXPECT_GE(available_threads(), 1); }

}  // namespace
}  // namespace pewter
