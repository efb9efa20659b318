// Counts the allocations of a test program, on all threads: through malloc and its kin, or through
// operator new where a sanitizer owns malloc. The program lists allocation_counter.cc among its own
// sources, since it replaces the allocator.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>

namespace pewter::test {

int64_t allocation_count();

// Allocations the call makes.
template <typename F>
int64_t count_allocations(const F& call) {
  const int64_t before = allocation_count();
  call();
  return allocation_count() - before;
}

// Runs an op, which must allocate nothing.
template <typename F>
void run_without_allocating(const F& op) {
  EXPECT_EQ(count_allocations(op), 0) << "an op allocated";
}

}  // namespace pewter::test
