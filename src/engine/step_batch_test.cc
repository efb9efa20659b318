// A batch that is sent in part is the batch, whatever was sent before.

#include "engine/step_batch.h"

#include <gtest/gtest.h>

#include "base/rng.h"
#include "model/kv_cache.h"
#include "model/qwen35/testing/host_device.h"

namespace pewter {
namespace {

class CountingHost final : public HostDevice {
 public:
  void copy_to_device(std::byte* to, std::span<const std::byte> from) override {
    copies.push_back(std::ssize(from));
    HostDevice::copy_to_device(to, from);
  }
  std::vector<int64_t> copies;  // bytes of each
};

constexpr StepBatch::Sizes kSizes{
    .rows = 24, .sequences = 6, .logits_rows = 24, .pages = 700, .steps = 4};

SequenceState sequence(int32_t slot, int64_t pages, int64_t length) {
  SequenceState state{.slot = slot, .length = length, .pending = slot % 3};
  for (int32_t i = 0; i < pages; ++i) state.pages.push_back(i * 5 + slot);
  return state;
}

// Everything that kernels may read.
std::vector<int32_t> contents(const Batch& batch, std::span<const SequenceRows> rows) {
  std::vector<int32_t> all;
  const auto add = [&all](const int32_t* from, int64_t count) {
    all.insert(all.end(), from, from + count);
  };
  for (const int32_t* array :
       {batch.tokens, batch.hidden_rows, batch.embedding_index, batch.row_sequence})
    add(array, batch.rows);
  add(batch.positions, 3 * batch.rows);
  add(batch.logits_rows, batch.logits_count);
  add(batch.row_begin, batch.sequences + 1);
  for (const int32_t* array :
       {batch.position_delta, batch.context_length, batch.slot, batch.accepted})
    add(array, batch.sequences);
  for (int64_t s = 0; s < batch.sequences; ++s)
    add(batch.page_table + s * batch.page_table_stride,
        std::ssize(rows[static_cast<size_t>(s)].sequence->pages));
  return all;
}

TEST(StepBatch, SendsWhatDiffers) {
  CountingHost device;
  StepBatch batch = StepBatch::make(device, kSizes).value();
  SequenceState state = sequence(1, 600, 30000);
  std::vector<int32_t> tokens = {5, -1, 7};
  const auto fill = [&] {
    const SequenceRows rows{.sequence = &state, .tokens = tokens, .logits = LogitsWanted::kAll};
    device.copies.clear();
    batch.fill(Phase::kDecode, std::span(&rows, 1));
  };
  fill();
  ASSERT_EQ(device.copies.size(), 2u);
  EXPECT_EQ(device.copies[0], 600 * 4);
  EXPECT_LE(device.copies[1], 4 * (8 * 3 + 6));
  fill();
  EXPECT_EQ(device.copies.size(), 0u);
  // The next step: other tokens, further on. Pages stay.
  tokens = {9, 9, 9};
  state.length += 2;
  fill();
  ASSERT_EQ(device.copies.size(), 1u);
  EXPECT_LE(device.copies[0], 4 * (5 * 3 + 2));
  // A step of fewer rows, whose arrays lie elsewhere; the pages do not.
  tokens = {9};
  fill();
  ASSERT_EQ(device.copies.size(), 1u);
  EXPECT_LE(device.copies[0], 4 * (8 + 6));
  // A page more, alone.
  state.pages.push_back(3);
  fill();
  EXPECT_EQ(device.copies, std::vector<int64_t>{4});
}

TEST(StepBatch, IsTheSameHoweverItWasSent) {
  HostDevice device;
  Rng rng(5);
  StepBatch used = StepBatch::make(device, kSizes).value();
  std::vector<SequenceState> states;
  for (int32_t i = 0; i < kSizes.sequences; ++i)
    states.push_back(sequence(i, 1 + static_cast<int64_t>(rng.below(8)), 0));
  std::vector<int32_t> tokens(4);
  for (int step = 0; step < 3000; ++step) {
    std::vector<SequenceRows> rows;
    for (SequenceState& state : states) {
      if (rng.below(3) == 0) continue;
      const uint64_t count = 1 + rng.below(4);
      state.length = static_cast<int64_t>(
          rng.below(static_cast<uint64_t>(std::ssize(state.pages) * kPageTokens) - count));
      if (rng.below(9) == 0) state.pages.back() = static_cast<int32_t>(rng.below(50));
      for (int32_t& token : tokens) token = static_cast<int32_t>(rng.below(99)) - 3;
      rows.push_back({.sequence = &state,
                      .tokens = std::span(tokens).first(count),
                      .logits = static_cast<LogitsWanted>(rng.below(4)),
                      .hidden_row = static_cast<int64_t>(rng.below(9)) - 1});
    }
    if (rows.empty()) continue;
    StepBatch fresh = StepBatch::make(device, kSizes).value();
    EXPECT_EQ(contents(used.fill(Phase::kDecode, rows), rows),
              contents(fresh.fill(Phase::kDecode, rows), rows))
        << step;
    if (step % 5 != 0) continue;
    EXPECT_EQ(contents(used.want_logits(0, 1), rows), contents(fresh.want_logits(0, 1), rows));
  }
}

// A chain's steps are those that one would fill in turn, and travel together.
TEST(StepBatch, FillsChains) {
  CountingHost device;
  Rng rng(6);
  StepBatch batch = StepBatch::make(device, kSizes).value();
  std::vector<SequenceState> states;
  for (int32_t i = 0; i < kSizes.sequences; ++i) states.push_back(sequence(i, 4, 0));
  const std::vector<int32_t> tokens = {7, 8, 9};
  for (int round = 0; round < 500; ++round) {
    std::vector<SequenceRows> rows;
    std::vector<int64_t> positions;
    for (SequenceState& state : states) {
      if (rng.below(2) == 0) continue;
      state.position_delta = static_cast<int32_t>(rng.below(4));
      rows.push_back({.sequence = &state,
                      .tokens = std::span(tokens).first(1 + rng.below(3)),
                      .hidden_row = static_cast<int64_t>(rng.below(9))});
      positions.push_back(static_cast<int64_t>(rng.below(200)));
    }
    if (rows.empty()) continue;
    const auto steps = static_cast<int64_t>(1 + rng.below(4));
    const auto going_on = 1 + rng.below(rows.size());
    device.copies.clear();
    const std::span<const Batch> chain =
        batch.fill_chain(Phase::kDecode, rows, positions,
                         {.steps = steps - 1, .sequences = static_cast<int64_t>(going_on)});
    ASSERT_EQ(std::ssize(chain), steps);
    // Of the arrays one; of those sequences' pages, where others stood before.
    EXPECT_LE(std::ssize(device.copies), 1 + std::ssize(rows));
    std::vector<int32_t> choices(rows.size());
    int32_t choice = 0;
    for (const Batch& step : chain) {
      StepBatch fresh = StepBatch::make(device, kSizes).value();
      EXPECT_EQ(contents(step, rows), contents(fresh.fill(Phase::kDecode, rows, positions), rows));
      int64_t end = 0;
      for (size_t s = 0; s < rows.size(); ++s) {
        end += std::ssize(rows[s].tokens);
        positions[s] += std::ssize(rows[s].tokens);
        rows[s].hidden_row = end - 1;
      }
      rows.resize(going_on);
      positions.resize(going_on);
      for (size_t s = 0; s < going_on; ++s) {
        choices[s] = -1 - choice++;
        rows[s].tokens = std::span(choices).subspan(s, 1);
      }
    }
  }
}

// A chain is recorded with one kind of kernels for contexts, whichever of its steps has the
// longest.
TEST(StepBatch, AChainIsShortWhenAllOfItIs) {
  HostDevice device;
  StepBatch batch = StepBatch::make(device, kSizes).value();
  SequenceState state = sequence(1, 600, 0);
  const std::vector<int32_t> tokens = {7, 8};
  const SequenceRows rows{.sequence = &state, .tokens = tokens, .logits = LogitsWanted::kLast};
  for (const int64_t more : {0, 1}) {
    const int64_t position = kShortContext - 4 + more;
    for (const Batch& step :
         batch.fill_chain(Phase::kDecode, std::span(&rows, 1), std::span(&position, 1),
                          {.steps = 2, .sequences = 1}))
      EXPECT_EQ(step.is_short, more == 0);
  }
}

// Only steps with one row of logits are told apart, so that others are recorded once.
TEST(StepBatch, StepsOfSeveralRowsAreNeverShort) {
  HostDevice device;
  StepBatch batch = StepBatch::make(device, kSizes).value();
  SequenceState state = sequence(1, 600, 0);
  const std::vector<int32_t> tokens = {7, 8};
  const auto is_short = [&](LogitsWanted logits, size_t rows, int64_t position) {
    const SequenceRows plan{
        .sequence = &state, .tokens = std::span(tokens).first(rows), .logits = logits};
    return batch.fill(Phase::kDecode, std::span(&plan, 1), std::span(&position, 1)).is_short;
  };
  EXPECT_TRUE(is_short(LogitsWanted::kAll, 1, kShortContext - 1));
  EXPECT_FALSE(is_short(LogitsWanted::kAll, 1, kShortContext));
  EXPECT_FALSE(is_short(LogitsWanted::kAll, 2, 0));
  EXPECT_FALSE(is_short(LogitsWanted::kNone, 1, 0));
}

}  // namespace
}  // namespace pewter
