// The capture law on the host's side: a decode step allocates nothing. This program counts every
// allocation of the process: through malloc and its kin, or through operator new where a sanitizer
// owns malloc.

#include <gtest/gtest.h>

#include <atomic>
#include <cstdlib>
#include <new>

#include "engine/engine.h"
#include "support/test_rig.h"

namespace {
std::atomic<int64_t> allocations{0};
}  // namespace

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
// Not inlined: the compiler would see malloc on one side and operator delete on the other.
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

namespace pewter {
namespace {

using test::RigCase;
using test::TestRig;

// Allocations the call makes, on all threads.
template <typename F>
int64_t count_allocations(const F& call) {
  const int64_t before = allocations;
  call();
  return allocations - before;
}

class Allocation : public testing::TestWithParam<RigCase> {
 protected:
  std::vector<int32_t> tokens(int64_t count, uint64_t seed) const {
    return test::random_tokens(GetParam().config, count, seed);
  }
};
INSTANTIATE_TEST_SUITE_P(Backends, Allocation, testing::ValuesIn(test::rig_cases()),
                         test::kRigName);

TEST(AllocationCounter, Counts) {
  EXPECT_GT(count_allocations([] { std::vector<int>(1000).assign(2000, 1); }), 0);
}

TEST_P(Allocation, NoneInDecodeSteps) {
  const auto rig =
      TestRig::make(GetParam(), {.chunk_rows = 64, .max_sequences = 2, .decode_rows = 8});
  SequenceState a = rig->open(192), b = rig->open(192);
  rig->prefill(a, tokens(3, 1));
  rig->prefill(b, tokens(60, 2));  // crosses a page while decoding
  const std::vector<int32_t> first = tokens(8, 3), second = tokens(5, 4);
  const SequenceRows rows[] = {{.sequence = &a, .tokens = first, .logits = LogitsWanted::kAll},
                               {.sequence = &b, .tokens = second, .logits = LogitsWanted::kAll}};
  const auto step = [&] {
    rig->runner->decode(rows);
    rig->runner->accept(a, 8);
    rig->runner->accept(b, 2);
  };
  step();  // warm-up
  EXPECT_EQ(count_allocations([&] {
              for (int i = 0; i < 5; ++i) step();
            }),
            0);
  EXPECT_EQ(count_allocations([&] { rig->runner->fold(a); }), 0);
  const std::vector<int32_t> chunk = tokens(64, 5);
  EXPECT_EQ(count_allocations([&] { rig->runner->prefill({.sequence = &a, .tokens = chunk}); }), 0);
}

// From one token to the next, the engine's own bookkeeping and the sampler's included.
TEST_P(Allocation, NoneBetweenTokens) {
  const auto rig = TestRig::make(GetParam(), {.chunk_rows = 64});
  const auto engine = Engine::make(rig->model, *rig->backend.device, *rig->backend.ops,
                                   {.runner = {.chunk_rows = 64, .cache_tokens = 256}})
                          .value();
  const Request request{.prompt = tokens(70, 6),
                        .sampling = {.temperature = 5,
                                     .top_k = 100,
                                     .top_p = 0.95f,
                                     .min_p = 0.001f,
                                     .repetition_penalty = 1.1f,
                                     .presence_penalty = 1,
                                     .frequency_penalty = 0.5f,
                                     .seed = 1,
                                     .logit_bias = {{3, 4.0f}}},
                        .max_tokens = 100,
                        .min_tokens = 50,
                        .stop_ids = {1, 2}};
  int64_t at_second = 0, at_last = 0, count = 0;
  const Engine::Hooks hooks{.on_token = [&](const TokenEvent&) {
    if (++count == 2) at_second = allocations;
    at_last = allocations;
    return true;
  }};
  ASSERT_TRUE(engine->generate(request, hooks));
  EXPECT_GT(count, 50);
  EXPECT_EQ(at_last - at_second, 0);
}

}  // namespace
}  // namespace pewter
