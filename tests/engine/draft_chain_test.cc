// The MTP layer's guesses are one chain on the device: what it guesses is what single steps guess,
// each told the token before, and the host waits once for all of them.

#include "engine/mtp_drafter.h"
#include "support/counting_device.h"
#include "support/test_rig.h"

namespace pewter {
namespace {

using test::CountingDevice;
using test::TestRig;
using Guesses = std::vector<std::vector<int32_t>>;

constexpr RunnerOptions kOptions{.chunk_rows = 64, .max_sequences = 3, .decode_rows = 8};
constexpr size_t kSequences = 3;

class DraftChain : public test::RigTest {
 protected:
  void SetUp() override {
    RigTest::SetUp();
    if (!IsSkipped()) make({});
  }
  // ids: of a head for drafts alone; empty: there is none.
  void make(std::vector<int32_t> ids) {
    drafter_.reset();
    rig_ = TestRig::make(GetParam(), kOptions);
    ModelWeights& weights = rig_->model.weights;
    if (!ids.empty()) weights.draft_head = DraftHead{.rows = weights.head, .ids = std::move(ids)};
    device_ = std::make_unique<CountingDevice>(*rig_->backend.device);
    rig_->runner.reset();
    rig_->runner = ModelRunner::make(rig_->model, *device_, *rig_->backend.ops, kOptions).value();
    drafter_ = MtpDrafter::make(*rig_->runner, *device_, *rig_->backend.ops).value();
  }
  void TearDown() override {
    drafter_.reset();
    rig_.reset();
  }

  // Sequences that have read a prompt and one row each behind it, in one step.
  void begin() {
    std::vector<SequenceRows> rows;
    for (size_t i = 0; i < kSequences; ++i) {
      SequenceState& state = states_[i];
      text_[i] = tokens(20 + 3 * static_cast<int64_t>(i), 5 + i);
      const std::span<const int32_t> text(text_[i]);
      state = rig_->open(64);
      EXPECT_TRUE(drafter_->begin(state, 64));
      rig_->prefill(state, text.first(text.size() - 2));
      drafter_->read(state, text.first(text.size() - 2), 0);
      const DraftSequence none{.state = &state,
                               .tokens = text.first(text.size() - 1),
                               .first_row = state.length - 1,
                               .rows = 1};
      drafter_->draft(std::span(&none, 1));
      rows.push_back({.sequence = &state, .tokens = text.last(2).first(1)});
    }
    rig_->runner->decode(rows);
    for (SequenceState& state : states_) rig_->runner->accept(state, 1);
  }
  void end() {
    for (SequenceState& state : states_) rig_->runner->close(state);
  }
  Guesses draft(const std::array<int64_t, kSequences>& most) {
    Guesses guesses(kSequences);
    std::vector<DraftSequence> sequences;
    for (size_t i = 0; i < kSequences; ++i)
      sequences.push_back({.state = &states_[i],
                           .tokens = text_[i],
                           .first_row = static_cast<int64_t>(i),
                           .rows = 1,
                           .most = most[i],
                           .drafts = &guesses[i]});
    device_->take_events();
    drafter_->draft(sequences);
    return guesses;
  }

  // The same, from a first guess on with a step and a wait for each further one.
  Guesses draft_step_by_step(const std::array<int64_t, kSequences>& most) {
    ModelRunner& runner = *rig_->runner;
    GreedyChooser chooser = GreedyChooser::make(*rig_->backend.device, *rig_->backend.ops,
                                                {.rows = kSequences,
                                                 .choices = kSequences,
                                                 .vocab_limit = runner.model().config.vocab_size,
                                                 .ids = runner.model().weights.drafted_ids()})
                                .value();
    Guesses guesses = draft({1, 1, 1});
    std::array<int64_t, kSequences> row{0, 1, 2};  // of the last step
    for (int64_t number = 2;; ++number) {
      std::vector<MtpRows> rows;
      std::vector<size_t> whose;
      for (size_t i = 0; i < kSequences; ++i) {
        if (most[i] < number) continue;
        rows.push_back({.sequence = &states_[i],
                        .tokens = std::span(guesses[i]).last(1),
                        .position = states_[i].length + number - 2,
                        .hidden_row = row[i]});
        row[i] = std::ssize(whose);
        whose.push_back(i);
      }
      if (rows.empty()) return guesses;
      runner.draft_mtp(rows, chooser);
      const std::span<const int32_t> chosen = chooser.tokens();
      for (size_t i = 0; i < whose.size(); ++i) guesses[whose[i]].push_back(chosen[i]);
    }
  }

  std::unique_ptr<TestRig> rig_;
  std::unique_ptr<CountingDevice> device_;
  std::unique_ptr<Drafter> drafter_;
  std::array<SequenceState, kSequences> states_;
  std::array<std::vector<int32_t>, kSequences> text_;
};
INSTANTIATE_TEST_SUITE_P(Backends, DraftChain, testing::ValuesIn(test::small_rig_cases()),
                         test::kRigName);

constexpr std::array<int64_t, kSequences> kMost = {2, 6, 4};

// Twice, for recorded steps.
TEST_P(DraftChain, WaitsOnce) {
  for (int i = 0; i < 2; ++i) {
    begin();
    const Guesses guesses = draft(kMost);
    for (size_t s = 0; s < kSequences; ++s) EXPECT_EQ(std::ssize(guesses[s]), kMost[s]);
    // Keys and values of what waited, and as many steps as the most guesses of a sequence.
    EXPECT_EQ(device_->take_events(), "sssssssw");
    end();
  }
}

TEST_P(DraftChain, GuessesWhatStepsGuess) {
  const int64_t vocabulary = GetParam().config.vocab_size;
  std::vector<int32_t> turned;
  for (int64_t id = 0; id < vocabulary; ++id)
    turned.push_back(static_cast<int32_t>((id * 7 + 3) % vocabulary));
  Guesses plain;
  for (const std::vector<int32_t>& ids : {std::vector<int32_t>(), turned}) {
    make(ids);
    begin();
    const Guesses steps = draft_step_by_step(kMost);
    end();
    begin();
    const Guesses chain = draft(kMost);
    end();
    EXPECT_EQ(chain, steps) << ids.size();
    if (ids.empty()) plain = chain;
    EXPECT_EQ(chain == plain, ids.empty());
  }
}

// A sequence whose logits are not finite gets no guesses; the others get theirs.
TEST_P(DraftChain, NothingIsGuessedFromWhatIsNotFinite) {
  begin();
  Guesses want = draft(kMost);
  end();
  begin();
  const TensorView hidden = rig_->runner->hidden_rows(1, 1);
  const std::vector<std::byte> nan(static_cast<size_t>(hidden.bytes()), std::byte{0xFF});
  device_->copy_to_device(hidden.data(), nan);
  want[1].clear();
  EXPECT_EQ(draft(kMost), want);
  EXPECT_EQ(device_->take_events(), "sssssssw");
  end();
}

}  // namespace
}  // namespace pewter
