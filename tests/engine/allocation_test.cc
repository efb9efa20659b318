// The capture law on the host's side: a decode step allocates nothing.

#include <gtest/gtest.h>

#include "engine/engine.h"
#include "support/allocation_counter.h"
#include "support/test_rig.h"

namespace pewter {
namespace {

using test::count_allocations;
using test::RigCase;
using test::TestRig;

// What keeps steps on the CPU allocates.
std::vector<RigCase> recorded_nowhere() {
  std::vector<RigCase> cases = test::rig_cases();
  std::erase_if(cases, [](const RigCase& tested) { return tested.device == "cpu-replayed"; });
  return cases;
}

class Allocation : public test::RigTest {};
INSTANTIATE_TEST_SUITE_P(Backends, Allocation, testing::ValuesIn(recorded_nowhere()),
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

// From one token to the next, the engine's own bookkeeping and the sampler's included; drafters
// too.
TEST_P(Allocation, NoneBetweenTokens) {
  const auto rig = TestRig::make(GetParam(), {.chunk_rows = 64});
  const DraftOptions ways[] = {
      {},
      {.method = DraftMethod::kSuffix, .tokens = 3},
      {.method = DraftMethod::kMtp, .tokens = 3},
      {.method = DraftMethod::kAuto, .tokens = 8, .depth = DraftLength::kByCost}};
  for (const DraftOptions& draft : ways) {
    const auto engine =
        Engine::make(rig->model, *rig->backend.device, *rig->backend.ops,
                     {.runner = {.chunk_rows = 64, .cache_tokens = 256}, .draft = draft})
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
    // Buffers of the first drafts are made when there are some, which the costs decide.
    const int64_t warm = draft.depth == DraftLength::kByCost ? 20 : 2;
    int64_t at_warm = 0, at_last = 0, count = 0;
    const Engine::Hooks hooks{.on_token = [&](const TokenEvent&) {
      if (++count == warm) at_warm = test::allocation_count();
      at_last = test::allocation_count();
      return true;
    }};
    ASSERT_TRUE(engine->generate(request, hooks));
    EXPECT_GT(count, 50);
    EXPECT_EQ(at_last - at_warm, 0);
  }
}

}  // namespace
}  // namespace pewter
