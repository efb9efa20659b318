#include "support/allocation_counter.h"

#include <atomic>
#include <cstdlib>
#include <new>

namespace {
std::atomic<int64_t> allocations{0};
}  // namespace

// g++ says it with macros, clang with features.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define SANITIZER_OWNS_MALLOC
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define SANITIZER_OWNS_MALLOC
#endif
#endif

#ifdef SANITIZER_OWNS_MALLOC
// Not inlined: g++ would take the call of free() in a test for a mismatch.
[[gnu::noinline]] void* operator new(size_t bytes) {
  ++allocations;
  void* const data = std::malloc(bytes);
  if (data == nullptr) std::abort();
  return data;
}
[[gnu::noinline]] void operator delete(void* data) noexcept { std::free(data); }
[[gnu::noinline]] void operator delete(void* data, size_t) noexcept { std::free(data); }
#else
extern "C" {
void* __libc_malloc(size_t bytes);
void* __libc_calloc(size_t count, size_t bytes);
void* __libc_realloc(void* data, size_t bytes);
void* __libc_memalign(size_t alignment, size_t bytes);
void* malloc(size_t bytes) {
  ++allocations;
  return __libc_malloc(bytes);
}
void* calloc(size_t count, size_t bytes) {
  ++allocations;
  return __libc_calloc(count, bytes);
}
void* realloc(void* data, size_t bytes) {
  ++allocations;
  return __libc_realloc(data, bytes);
}
void* aligned_alloc(size_t alignment, size_t bytes) {
  ++allocations;
  return __libc_memalign(alignment, bytes);
}
}
#endif

namespace pewter::test {

int64_t allocation_count() { return allocations; }

TEST(AllocationCounter, Counts) {
  const int64_t before = allocation_count();
  void* volatile data = ::operator new(100);
  ::operator delete(data);
  EXPECT_GT(allocation_count(), before);
}

}  // namespace pewter::test
