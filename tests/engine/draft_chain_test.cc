// The MTP layer's guesses are one chain on the device, and one recorded step as far as all
// sequences want guesses: what it guesses is what single steps guess, each told the token before,
// and the host waits once for all of them.

#include <algorithm>

#include "engine/mtp_drafter.h"
#include "support/counting_device.h"
#include "support/test_rig.h"

namespace pewter {
namespace {

using test::CountingDevice;
using test::TestRig;

constexpr RunnerOptions kOptions{.chunk_rows = 64, .max_sequences = 3, .decode_rows = 8};
constexpr size_t kSequences = 3;
using Guesses = std::vector<std::vector<int32_t>>;
using Depths = std::array<int64_t, kSequences>;  // guesses wanted of each sequence

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
  void begin(uint64_t seed = 5) {
    std::vector<SequenceRows> rows;
    for (size_t i = 0; i < kSequences; ++i) {
      SequenceState& state = states_[i];
      text_[i] = tokens(20 + 3 * static_cast<int64_t>(i), seed + 10 * i);
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
  Guesses draft(const Depths& most) {
    Guesses guesses(kSequences);
    const std::vector<DraftSequence> sequences = wanted(most, guesses);
    device_->take_events();
    drafter_->draft(sequences);
    return guesses;
  }
  std::vector<DraftSequence> wanted(const Depths& most, Guesses& guesses) {
    std::vector<DraftSequence> sequences;
    for (size_t i = 0; i < kSequences; ++i)
      sequences.push_back({.state = &states_[i],
                           .tokens = text_[i],
                           .first_row = static_cast<int64_t>(i),
                           .rows = 1,
                           .most = most[i],
                           .drafts = &guesses[i]});
    return sequences;
  }

  // The same, from a first guess on with a step and a wait for each further one.
  Guesses draft_step_by_step(const Depths& most) {
    Depths first{}, row{};  // of the last step
    int64_t drafting = 0;
    for (size_t i = 0; i < kSequences; ++i) {
      first[i] = std::min<int64_t>(most[i], 1);
      row[i] = drafting;
      drafting += first[i];
    }
    Guesses guesses = draft(first);
    guess_step_by_step(2, most, row, guesses);
    return guesses;
  }
  // Guesses of this number, from 1, and on. row: where the hidden before it is.
  void guess_step_by_step(int64_t number, const Depths& most, Depths row, Guesses& guesses) {
    ModelRunner& runner = *rig_->runner;
    GreedyChooser chooser = GreedyChooser::make(*rig_->backend.device, *rig_->backend.ops,
                                                {.rows = kSequences,
                                                 .choices = kSequences,
                                                 .vocab_limit = runner.model().config.vocab_size,
                                                 .ids = runner.model().weights.drafted_ids()})
                                .value();
    for (;; ++number) {
      std::vector<MtpRows> rows;
      std::vector<size_t> whose;
      for (size_t i = 0; i < kSequences; ++i) {
        if (most[i] < number) continue;
        rows.push_back({.sequence = &states_[i],
                        .tokens = std::span(number == 1 ? text_[i] : guesses[i]).last(1),
                        .position = states_[i].length + number - 2,
                        .hidden_row = row[i]});
        row[i] = std::ssize(whose);
        whose.push_back(i);
      }
      if (rows.empty()) return;
      runner.draft_mtp(rows, {.sequences = std::ssize(rows)}, chooser);
      chooser.read(std::ssize(rows));
      const std::span<const int32_t> chosen = chooser.tokens();
      for (size_t i = 0; i < whose.size(); ++i) guesses[whose[i]].push_back(chosen[i]);
    }
  }

  // Guesses behind two steps of kRows rows, of which `accepted` count, and the last one's logits.
  static constexpr int64_t kRows = 4;
  std::pair<Guesses, test::Rows> draft_behind(int64_t accepted, const Depths& most, uint64_t seed,
                                              bool step_by_step) {
    Guesses all(kSequences);
    for (size_t i = 0; i < kSequences; ++i) {
      text_[i] = tokens(21, seed + 10 * i);
      states_[i] = rig_->open(64);
      EXPECT_TRUE(drafter_->begin(states_[i], 64));
      rig_->prefill(states_[i], std::span(text_[i]).first(20));
      drafter_->read(states_[i], std::span(text_[i]).first(20), 0);
      const DraftSequence first{.state = &states_[i],
                                .tokens = text_[i],
                                .first_row = 19,
                                .rows = 1,
                                .most = 1,
                                .drafts = &all[i]};
      drafter_->draft(std::span(&first, 1));
    }
    for (int step = 0; step < 2; ++step) {
      std::vector<SequenceRows> rows;
      for (size_t i = 0; i < kSequences; ++i) {
        const std::vector<int32_t> more = tokens(kRows, seed + 10 * i + 1);
        text_[i].insert(text_[i].end(), more.begin(), more.end());
        rows.push_back(
            {.sequence = &states_[i], .tokens = std::span(text_[i]).last(kRows + 1).first(kRows)});
      }
      rig_->runner->decode(rows);
      std::vector<DraftSequence> sequences;
      Depths hidden_row{};
      Guesses guesses(kSequences);
      for (size_t i = 0; i < kSequences; ++i) {
        rig_->runner->accept(states_[i], accepted);
        text_[i].resize(static_cast<size_t>(states_[i].length) + 1);
        hidden_row[i] = static_cast<int64_t>(i) * kRows + accepted - 1;
        sequences.push_back({.state = &states_[i],
                             .tokens = text_[i],
                             .first_row = static_cast<int64_t>(i) * kRows,
                             .rows = accepted,
                             .most = most[i],
                             .drafts = &guesses[i]});
      }
      if (step_by_step) {
        follow(sequences);
        guess_step_by_step(1, most, hidden_row, guesses);
      } else {
        device_->take_events();
        drafter_->draft(sequences);
      }
      for (size_t i = 0; i < kSequences; ++i)
        all[i].insert(all[i].end(), guesses[i].begin(), guesses[i].end());
    }
    end();
    return {all, rig_->logits()};
  }
  void follow(std::span<const DraftSequence> sequences) {
    std::vector<MtpRows> rows;
    for (const DraftSequence& sequence : sequences)
      if (sequence.most > 0 && sequence.rows > 1)
        rows.push_back({.sequence = sequence.state,
                        .tokens = sequence.tokens.last(static_cast<size_t>(sequence.rows))
                                      .first(static_cast<size_t>(sequence.rows) - 1),
                        .position = sequence.state->length - sequence.rows,
                        .hidden_row = sequence.first_row});
    if (!rows.empty()) rig_->runner->follow_mtp(rows);
  }

  std::unique_ptr<TestRig> rig_;
  std::unique_ptr<CountingDevice> device_;
  std::unique_ptr<Drafter> drafter_;
  std::array<SequenceState, kSequences> states_;
  std::array<std::vector<int32_t>, kSequences> text_;
};
INSTANTIATE_TEST_SUITE_P(Backends, DraftChain, testing::ValuesIn(test::small_rig_cases()),
                         test::kRigName);

constexpr Depths kMost = {2, 6, 4};
constexpr int64_t kDeepest = kOptions.decode_rows - 1;
// A step runs as it comes, is recorded, and is replayed.
constexpr uint64_t kRounds = 3;

TEST_P(DraftChain, IsOneStepAsFarAsAllGo) {
  for (uint64_t round = 0; round < kRounds; ++round) {
    const auto events = [&](const Depths& most) {
      begin();
      const Guesses guesses = draft(most);
      for (size_t s = 0; s < kSequences; ++s) EXPECT_EQ(std::ssize(guesses[s]), most[s]);
      end();
      return device_->take_events();
    };
    // Keys and values of what waited come first; the host waits once.
    for (int64_t depth = 1; depth <= kDeepest; ++depth) {
      EXPECT_EQ(events({depth, depth, depth}), "ssw");
      EXPECT_EQ(events({0, depth, 0}), "ssw");
    }
    EXPECT_EQ(events(kMost), "ssssssw");  // two together, and four by those who go on
    EXPECT_EQ(events({0, 3, 1}), "ssssw");
  }
}

TEST_P(DraftChain, GuessesWhatStepsGuess) {
  std::vector<Depths> depths = {kMost, {7, 1, 1}, {3, 0, 5}};
  for (int64_t depth = 1; depth <= kDeepest; ++depth)
    depths.insert(depths.end(), {{depth, depth, depth}, {depth, 0, depth}, {0, depth, 0}});
  const int64_t vocabulary = GetParam().config.vocab_size;
  std::vector<int32_t> turned;
  for (int64_t id = 0; id < vocabulary; ++id)
    turned.push_back(static_cast<int32_t>((id * 7 + 3) % vocabulary));
  std::vector<Guesses> plain;
  for (const std::vector<int32_t>& ids : {std::vector<int32_t>(), turned}) {
    make(ids);
    std::vector<Guesses> steps, chains;
    const auto guess = [&](std::vector<Guesses>& all, const auto& draft) {
      for (uint64_t round = 0; round < (GetParam().is_exact() ? 1 : kRounds); ++round)
        for (const Depths& most : depths) {
          begin(round);
          all.push_back(draft(most));
          end();
        }
    };
    guess(steps, [this](const Depths& most) { return draft_step_by_step(most); });
    guess(chains, [this](const Depths& most) { return draft(most); });
    EXPECT_EQ(chains, steps) << ids.size();
    if (ids.empty()) plain = chains;
    EXPECT_EQ(chains == plain, ids.empty());
  }
}

// What was committed before the row that is drafted from is read in the same step where one
// sequence is drafted for, and in a step before where more are.
TEST_P(DraftChain, ReadsCommittedRows) {
  const std::vector<Depths> depths = {{0, 1, 0}, {0, 3, 0}, {0, kDeepest, 0}, {2, 2, 2}, {3, 0, 1}};
  std::vector<std::pair<Guesses, test::Rows>> steps, chains;
  for (const bool step_by_step : {true, false})
    for (uint64_t round = 0; round < (GetParam().is_exact() ? 1 : kRounds); ++round)
      for (const Depths& most : depths)
        for (int64_t accepted = 1; accepted <= kRows; ++accepted) {
          (step_by_step ? steps : chains)
              .push_back(draft_behind(accepted, most, round, step_by_step));
          if (step_by_step) continue;
          const bool alone = most[0] == 0, equal = most[0] == most[2];
          const std::string events = equal ? "sw" : "sssw";
          EXPECT_EQ(device_->take_events(), (alone || accepted == 1 ? "" : "s") + events);
          // Behind their keys and values nothing is made of rows that are not drafted from.
          EXPECT_EQ(rig_->runner->hidden().dim(0), equal && !alone ? 3 : 1);
        }
  EXPECT_EQ(chains, steps);
}

// Choices are part of what is recorded, but not those of another chooser.
TEST_P(DraftChain, IsRecordedForItsChooser) {
  const auto make_chooser = [&](int64_t limit) {
    return GreedyChooser::make(*device_, *rig_->backend.ops,
                               {.rows = 1, .choices = kDeepest, .vocab_limit = limit})
        .value();
  };
  GreedyChooser any = make_chooser(GetParam().config.vocab_size), few = make_chooser(7);
  const auto guess = [&](uint64_t seed, GreedyChooser& chooser) {
    begin(seed);
    const MtpRows row{.sequence = &states_[0],
                      .tokens = std::span(text_[0]).last(1),
                      .position = states_[0].length - 2};  // the first that is not read yet
    rig_->runner->draft_mtp(std::span(&row, 1), {.each = kDeepest}, chooser);
    end();
    chooser.read(kDeepest);
    const std::span<const int32_t> tokens = chooser.tokens();
    return std::vector<int32_t>(tokens.begin(), tokens.end());
  };
  std::vector<std::vector<int32_t>> want, got;
  for (std::vector<std::vector<int32_t>>* const all : {&want, &got}) {
    rig_->runner->set_replay(all == &got);
    for (uint64_t round = 0; round < kRounds; ++round)
      for (GreedyChooser* const chooser : {&any, &any, &any, &few, &few, &few})
        all->push_back(guess(all->size(), *chooser));
  }
  EXPECT_EQ(got, want);
  EXPECT_LT(std::ranges::max(want[3]), 7);
  EXPECT_GT(std::ranges::max(want[3]), 0);
  EXPECT_GT(std::ranges::max(want[0]), 7);
}

// A sequence whose logits are not finite gets no guesses; the others get theirs.
TEST_P(DraftChain, NothingIsGuessedFromWhatIsNotFinite) {
  for (const Depths& most : {kMost, Depths{3, 3, 3}}) {
    begin();
    Guesses want = draft(most);
    end();
    want[1].clear();
    for (uint64_t round = 0; round < kRounds; ++round) {
      begin();
      const TensorView hidden = rig_->runner->hidden_rows(1, 1);
      const std::vector<std::byte> nan(static_cast<size_t>(hidden.bytes()), std::byte{0xFF});
      device_->copy_to_device(hidden.data(), nan);
      EXPECT_EQ(draft(most), want);
      end();
    }
  }
}

// Meanwhile guesses are numbers of choices. A step that takes them as such runs the first token of
// the drafts' for what is not finite, so that is what it verifies.
TEST_P(DraftChain, StandsForGuessesUntilTheyAreHeard) {
  const int64_t vocabulary = GetParam().config.vocab_size;
  std::vector<int32_t> ids;
  for (int64_t id = 0; id < vocabulary; ++id)
    ids.push_back(static_cast<int32_t>((id + 5) % vocabulary));
  make(ids);
  begin();
  const Guesses want = draft({3, 3, 3});
  end();
  for (const bool all : {false, true}) {
    begin();
    const TensorView hidden = rig_->runner->hidden_rows(1, 1);
    const std::vector<std::byte> nan(static_cast<size_t>(hidden.bytes()), std::byte{0xFF});
    device_->copy_to_device(hidden.data(), nan);
    Guesses guesses(kSequences, {8});  // behind a token that was chosen
    const std::vector<DraftSequence> sequences = wanted({3, 3, 3}, guesses);
    ASSERT_TRUE(drafter_->start(sequences));
    EXPECT_EQ(guesses, (Guesses{{8, -1, -4, -7}, {8, -2, -5, -8}, {8, -3, -6, -9}}));
    drafter_->finish(all);
    for (size_t i = 0; i < kSequences; ++i) {
      std::vector<int32_t> heard = {8};
      heard.insert(heard.end(), want[i].begin(), want[i].end());
      if (i == 1) heard.resize(1);
      if (i == 1 && all) heard.insert(heard.end(), 3, ids[0]);
      EXPECT_EQ(guesses[i], heard) << i;
    }
    end();
  }
}

}  // namespace
}  // namespace pewter
