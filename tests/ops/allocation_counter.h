// Counts the allocations of this program, on all threads.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>

namespace pewter::test {

int64_t allocation_count();

// Runs an op, which must allocate nothing.
template <typename F>
void run_without_allocating(const F& op) {
  const int64_t before = allocation_count();
  op();
  EXPECT_EQ(allocation_count() - before, 0) << "an op allocated";
}

}  // namespace pewter::test
