// What a runner keeps between steps: pages and slots, their lending and return, and slots as bytes.

#include <gmock/gmock.h>

#include <algorithm>

#include "support/test_rig.h"

namespace pewter {
namespace {

using test::RigCase;
using test::Rows;
using test::TestRig;
using testing::HasSubstr;

class RunnerState : public test::RigTest {};
INSTANTIATE_TEST_SUITE_P(Backends, RunnerState, testing::ValuesIn(test::rig_cases()),
                         test::kRigName);

TEST_P(RunnerState, ExportedSlotContinuesElsewhere) {
  const RunnerOptions options{.chunk_rows = 64, .max_sequences = 3, .decode_rows = 4};
  const auto rig = TestRig::make(GetParam(), options), other = TestRig::make(GetParam(), options);
  SequenceState original = rig->open(192);
  rig->prefill(original, tokens(66, 1));
  rig->decode(original, tokens(4, 2));
  rig->runner->accept(original, 3);  // three rows on the tape: export folds them first

  SequenceState stranger = other->open(64);  // so that slots and pages differ
  SequenceState here = rig->copy(original, *rig, 192);
  SequenceState there = rig->copy(original, *other, 192);
  EXPECT_EQ(original.pending, 0);
  EXPECT_NE(here.slot, original.slot);

  const std::vector<int32_t> next = tokens(3, 3), more = tokens(20, 4);
  const Rows expected = rig->steps(original, next);
  EXPECT_EQ(rig->steps(here, next), expected);
  EXPECT_EQ(other->steps(there, next), expected);
  const std::vector<float> last = rig->prefill(original, more);
  EXPECT_EQ(rig->prefill(here, more), last);
  EXPECT_EQ(other->prefill(there, more), last);
  other->runner->close(stranger);
}

// The same history, grouped differently, in different slots: the same bytes.
TEST_P(RunnerState, IdenticalHistoriesExportTheSameBytes) {
  const auto rig =
      TestRig::make(GetParam(), {.chunk_rows = 64, .max_sequences = 3, .decode_rows = 16});
  const std::vector<int32_t> prompt = tokens(6, 5), text = tokens(12, 6), junk = tokens(7, 7);
  SequenceState steps = rig->open(128), grouped = rig->open(128), folded = rig->open(128);
  for (SequenceState* sequence : {&steps, &grouped, &folded}) rig->prefill(*sequence, prompt);
  rig->steps(steps, text);

  rig->decode(grouped, std::span(text).first(5));
  rig->runner->accept(grouped, 5);
  rig->decode(grouped, junk);  // rejected
  rig->decode(grouped, std::span(text).subspan(5));
  rig->runner->accept(grouped, 7);

  for (size_t i = 0; i < text.size(); i += 4) {  // folding between steps changes nothing
    rig->decode(folded, std::span(text).subspan(i, 4));
    rig->runner->accept(folded, 4);
    rig->runner->fold(folded);
    rig->runner->fold(folded);
  }
  const std::vector<std::byte> expected = rig->export_slot(steps);
  EXPECT_EQ(rig->export_slot(grouped), expected);
  EXPECT_EQ(rig->export_slot(folded), expected);
  EXPECT_NE(expected, std::vector<std::byte>(expected.size()));
}

TEST_P(RunnerState, ReusedPagesAndSlotsKeepNoTrace) {
  const RunnerOptions options{
      .chunk_rows = 64, .max_sequences = 2, .decode_rows = 4, .cache_tokens = 2 * kPageTokens};
  const auto rig = TestRig::make(GetParam(), options), fresh = TestRig::make(GetParam(), options);
  SequenceState a = rig->open(64), b = rig->open(64);  // fill both pages and both slots
  rig->prefill(a, tokens(60, 8));
  rig->prefill(b, tokens(64, 18));
  rig->decode(a, tokens(4, 9));
  rig->runner->accept(a, 4);
  rig->runner->close(b);
  rig->runner->close(a);
  const std::vector<int32_t> prompt = tokens(66, 10), next = tokens(3, 11);
  SequenceState reused = rig->open(128), first = fresh->open(128);
  EXPECT_EQ(rig->prefill(reused, prompt), fresh->prefill(first, prompt));
  EXPECT_EQ(rig->steps(reused, next), fresh->steps(first, next));
}

// Not even non-finite ones: NaN in an unused position must not meet a zero weight.
TEST_P(RunnerState, ReusedPagesMayHoldNonFiniteValues) {
  const RunnerOptions options{.chunk_rows = 64, .max_sequences = 1, .cache_tokens = 128};
  const auto rig = TestRig::make(GetParam(), options), fresh = TestRig::make(GetParam(), options);
  for (int64_t i = 0; i < rig->runner->pool().kv.layers(); ++i) {
    const KvLayer layer = rig->runner->pool().kv.layer(i);
    const auto poison = [&](std::byte* plane, int64_t page_bytes) {  // all-ones is NaN everywhere
      const std::vector<std::byte> bytes(static_cast<size_t>(2 * page_bytes), std::byte{0xFF});
      rig->backend.device->copy_to_device(plane, bytes);
    };
    poison(layer.keys, layer.key_page_bytes);
    poison(layer.values, layer.value_page_bytes);
  }
  const std::vector<int32_t> prompt = tokens(37, 12), next = tokens(5, 13);
  SequenceState dirty = rig->open(128), clean = fresh->open(128);
  EXPECT_EQ(rig->prefill(dirty, prompt), fresh->prefill(clean, prompt));
  EXPECT_EQ(rig->steps(dirty, next), fresh->steps(clean, next));
}

TEST_P(RunnerState, OpenTakesAndCloseReturnsEverything) {
  const auto rig = TestRig::make(
      GetParam(), {.chunk_rows = 64, .max_sequences = 2, .cache_tokens = 5 * kPageTokens});
  const StatePool& pool = rig->runner->pool();
  EXPECT_EQ(pool.kv.free_pages(), 5);
  EXPECT_EQ(pool.recurrent.free_slots(), 2);
  SequenceState a = rig->open(kPageTokens + 1), b = rig->open(1);
  EXPECT_EQ(pool.kv.free_pages(), 2);
  EXPECT_EQ(pool.recurrent.free_slots(), 0);

  const auto no_pages = rig->runner->open(3 * kPageTokens);
  ASSERT_FALSE(no_pages);
  EXPECT_EQ(no_pages.error().code, ErrorCode::kResourceExhausted);
  EXPECT_THAT(no_pages.error().message, HasSubstr("128 more positions, 192 are needed"));
  const auto no_slot = rig->runner->open(1);
  ASSERT_FALSE(no_slot);
  EXPECT_EQ(no_slot.error().code, ErrorCode::kResourceExhausted);
  EXPECT_THAT(no_slot.error().message, HasSubstr("all 2 slots"));
  EXPECT_EQ(pool.kv.free_pages(), 2);  // a failed open takes nothing

  rig->runner->close(a);
  rig->runner->close(b);
  EXPECT_EQ(pool.kv.free_pages(), 5);
  EXPECT_EQ(pool.recurrent.free_slots(), 2);
  EXPECT_EQ(a.slot, -1);
  rig->runner->close(a);  // closing a closed sequence is nothing
  EXPECT_EQ(pool.kv.free_pages(), 5);
}

TEST_P(RunnerState, RejectsImpossibleOptions) {
  const auto rig = TestRig::make(GetParam(), {.chunk_rows = 64});
  const auto fails = [&](const RunnerOptions& options, const char* field) {
    const auto made =
        ModelRunner::make(rig->model, *rig->backend.device, *rig->backend.ops, options);
    ASSERT_FALSE(made);
    EXPECT_EQ(made.error().code, ErrorCode::kInvalidArgument);
    EXPECT_THAT(made.error().message, HasSubstr(field));
  };
  fails({.chunk_rows = 0}, "chunk_rows: 0");
  fails({.chunk_rows = 65}, "chunk_rows: 65");
  fails({.max_sequences = 0}, "max_sequences: 0");
  fails({.decode_rows = 17}, "decode_rows: 17");
  fails({.cache_tokens = 0}, "cache_tokens: 0");
}

TEST(RunnerMisuse, IsCaught) {
  const std::vector<RigCase> cases = test::rig_cases();
  const auto rig =
      TestRig::make(cases.front(), {.chunk_rows = 64, .max_sequences = 2, .decode_rows = 2});
  const auto tokens = [&](int64_t count) {
    return test::random_tokens(cases.front().config, count, 14);
  };
  SequenceState sequence = rig->open(64);
  rig->prefill(sequence, tokens(62));
  EXPECT_DEATH(rig->runner->accept(sequence, 1), "accept 1 of 0");
  rig->decode(sequence, tokens(2));
  EXPECT_DEATH(rig->runner->accept(sequence, 3), "accept 3 of 2");
  EXPECT_DEATH(rig->decode(sequence, tokens(3)), "3 rows");
  const std::vector<int32_t> one = tokens(1);
  const SequenceRows twice[] = {{.sequence = &sequence, .tokens = one},
                                {.sequence = &sequence, .tokens = one}};
  EXPECT_DEATH(rig->decode(twice), "twice");
  rig->runner->accept(sequence, 2);
  EXPECT_DEATH(rig->runner->accept(sequence, 1), "accept 1 of 0");
  EXPECT_DEATH(rig->decode(sequence, one), "64 . 1 positions in 1 pages");
}

TEST(KvCache, CountsReferences) {
  const Backend backend = make_backend({.device = "cpu-reference"}).value();
  KvCache cache = KvCache::make(*backend.device, test::tiny_moe_config(), {}, 2, 3).value();
  const int32_t shared = cache.take(), other = cache.take(), last = cache.take();
  EXPECT_EQ(cache.take(), -1);
  std::vector<int32_t> pages = {shared, other, last};
  std::sort(pages.begin(), pages.end());
  EXPECT_THAT(pages, testing::ElementsAre(0, 1, 2));
  cache.retain(shared);
  cache.release(shared);
  EXPECT_EQ(cache.free_pages(), 0);  // the second owner still has it
  cache.release(other);
  EXPECT_EQ(cache.take(), other);
  cache.release(shared);
  EXPECT_EQ(cache.free_pages(), 1);
  EXPECT_DEATH(cache.release(shared), "is free");
  EXPECT_DEATH(cache.retain(shared), "is free");
}

TEST(RecurrentState, LendsZeroedSlots) {
  const Backend backend = make_backend({.device = "cpu-reference"}).value();
  RecurrentState state =
      RecurrentState::make(*backend.device, test::tiny_moe_config(), DType::kF32, 2).value();
  const auto bytes = static_cast<size_t>(state.export_bytes());
  const std::vector<std::byte> ones(bytes, std::byte{1}), zeros(bytes);
  const int32_t slot = state.take(), neighbour = state.take();
  EXPECT_EQ(state.take(), -1);
  state.import_slot(slot, ones);
  std::vector<std::byte> out(bytes);
  state.export_slot(neighbour, out);
  EXPECT_EQ(out, zeros);
  state.export_slot(slot, out);
  EXPECT_EQ(out, ones);
  state.release(slot);
  EXPECT_DEATH(state.release(slot), "slot");
  EXPECT_EQ(state.take(), slot);
  state.export_slot(slot, out);
  EXPECT_EQ(out, zeros);
}

}  // namespace
}  // namespace pewter
