// The controller against machines made of formulas: seconds are told, guesses are drawn.
#include "engine/draft_depth.h"

#include <gtest/gtest.h>

#include <cmath>

#include "base/rng.h"

namespace pewter {
namespace {

// A machine: what a step of so many sequences and guesses takes, and drafting of a depth.
struct Machine {
  double step = 1, row = 0.1, pass = 0.1, keep_up = 0.01;
  double noise = 0;  // a step takes up to this part more
  double verify(int64_t sequences, int64_t drafts) const {
    return step * (1 + 0.2 * static_cast<double>(sequences - 1)) +
           row * static_cast<double>(drafts);
  }
  double draft(int64_t depth) const {
    return depth == 0 ? keep_up : pass * static_cast<double>(depth);
  }
};

// One sequence whose guesses are right with probability alpha(step), independently.
struct Life {
  double seconds = 0;
  int64_t tokens = 0, steps = 0, drafts = 0, drafting_steps = 0, last = 0;
  double rate() const { return static_cast<double>(tokens) / seconds; }
};

template <typename Alpha>
Life live(DraftDepth& depth, const Machine& machine, int64_t steps, int64_t most, Alpha alpha,
          Rng& rng) {
  Life life;
  for (int64_t i = 0; i < steps; ++i) {
    DraftCandidate candidate{.slot = 0, .most = most};
    depth.choose(std::span(&candidate, 1));
    EXPECT_LE(candidate.drafts, most);
    const double drafting = machine.draft(candidate.drafts);
    depth.drafted(1, candidate.drafts, drafting);
    int64_t right = 0;
    while (right < candidate.drafts && rng.uniform() < alpha(i)) ++right;
    const double verifying =
        machine.verify(1, candidate.drafts) * (1 + machine.noise * rng.uniform());
    depth.judged(0, DraftSource::kModel, candidate.drafts, right);
    depth.verified(1, candidate.drafts, verifying);
    life.seconds += drafting + verifying;
    life.tokens += 1 + right;
    life.drafts += candidate.drafts;
    life.drafting_steps += candidate.drafts > 0;
    life.last = candidate.drafts;
    ++life.steps;
  }
  return life;
}

double constant_rate(const Machine& machine, int64_t n, double alpha) {
  double expected = 0;
  for (int64_t i = 0; i <= n; ++i) expected += std::pow(alpha, i);
  return expected / (machine.verify(1, n) * (1 + machine.noise / 2) + machine.draft(n));
}

// Within a few percent of the best constant length, which it is not told.
TEST(DraftDepth, FindsTheLengthThatPays) {
  const Machine machines[] = {{},
                              {.row = 0.02, .pass = 0.05},
                              {.row = 0.3, .pass = 0.3},
                              {.row = 0.05, .pass = 0.1, .noise = 0.5}};
  for (const Machine& machine : machines)
    for (const double alpha : {0.0, 0.3, 0.6, 0.8, 0.95}) {
      DraftDepth depth({});
      depth.begin(0);
      Rng rng(7);
      live(depth, machine, 300, 15, [&](int64_t) { return alpha; }, rng);
      const Life life = live(depth, machine, 2000, 15, [&](int64_t) { return alpha; }, rng);
      double best = 0;
      for (int64_t n = 0; n <= 15; ++n) best = std::max(best, constant_rate(machine, n, alpha));
      EXPECT_GT(life.rate(), 0.92 * best) << "alpha " << alpha << ", a row " << machine.row << ": "
                                          << life.drafts << " drafts in " << life.steps << " steps";
    }
}

// A request whose guesses are never right costs little more than without a drafter.
TEST(DraftDepth, HopelessGuessesCostLittle) {
  for (const Machine& machine : {Machine{}, Machine{.row = 0.5, .pass = 0.5}}) {
    DraftDepth depth({});
    depth.begin(0);
    Rng rng(3);
    const Life first = live(depth, machine, 100, 8, [](int64_t) { return 0.0; }, rng);
    EXPECT_LT(first.seconds, 1.2 * 100 * (machine.step + machine.keep_up));
    const Life settled = live(depth, machine, 2000, 8, [](int64_t) { return 0.0; }, rng);
    EXPECT_GT(settled.drafting_steps, 5);  // it does try again
    EXPECT_LT(settled.seconds, 1.03 * 2000 * (machine.step + machine.keep_up));
  }
}

// Short requests do not each begin with an attempt: what others have saved pays for it.
TEST(DraftDepth, ShortHopelessRequestsCostLittle) {
  const Machine machine;
  DraftDepth depth({});
  Rng rng(4);
  const auto never = [](int64_t) { return 0.0; };
  Life all;
  for (int request = 0; request < 200; ++request) {
    depth.begin(0);
    const Life life = live(depth, machine, 12, 8, never, rng);
    if (request < 5) continue;
    all.seconds += life.seconds;
    all.steps += life.steps;
    all.drafting_steps += life.drafting_steps;
  }
  EXPECT_GT(all.drafting_steps, 10);
  EXPECT_LT(all.seconds, 1.03 * static_cast<double>(all.steps) * (machine.step + machine.keep_up));
}

// A new request guesses as far as guesses of others were right, from its first step on.
TEST(DraftDepth, BeginsAsFarAsOthersGot) {
  const Machine machine{.row = 0.15, .pass = 0.1};
  const auto first_draft = [&](int64_t right_places) {
    DraftDepth depth({});
    for (int request = 0; request < 20; ++request) {
      depth.begin(0);
      for (int i = 0; i < 30; ++i) {
        DraftCandidate candidate{.slot = 0, .most = 6};
        depth.choose(std::span(&candidate, 1));
        depth.drafted(1, candidate.drafts, machine.draft(candidate.drafts));
        depth.verified(1, candidate.drafts, machine.verify(1, candidate.drafts));
        depth.judged(0, DraftSource::kModel, candidate.drafts,
                     std::min(candidate.drafts, right_places));
      }
    }
    depth.begin(0);
    DraftCandidate candidate{.slot = 0, .most = 6};
    do depth.choose(std::span(&candidate, 1));  // but for a plain step that is due
    while (candidate.drafts == 0);
    return candidate.drafts;
  };
  EXPECT_GE(first_draft(6), 5);
  EXPECT_LE(first_draft(2), 3);
}

TEST(DraftDepth, ComesBackWhenGuessesBecomeRight) {
  const Machine machine;
  DraftDepth depth({});
  depth.begin(0);
  Rng rng(5);
  live(depth, machine, 500, 8, [](int64_t) { return 0.0; }, rng);
  live(depth, machine, 200, 8, [](int64_t) { return 0.95; }, rng);
  const Life life = live(depth, machine, 200, 8, [](int64_t) { return 0.95; }, rng);
  EXPECT_GT(life.rate(), 0.9 * constant_rate(machine, 8, 0.95));
}

TEST(DraftDepth, FixedIsFixed) {
  DraftDepth depth({.max_sequences = 2, .fixed = true});
  depth.begin(0);
  for (int i = 0; i < 50; ++i) {
    DraftCandidate candidate{.slot = 0, .most = 5};
    depth.choose(std::span(&candidate, 1));
    EXPECT_EQ(candidate.drafts, 5);
    depth.judged(0, DraftSource::kModel, 5, 0);
    depth.verified(1, 5, 100);
  }
  DraftCandidate both{.slot = 0, .most = 5, .found = 2};
  depth.choose(std::span(&both, 1));
  EXPECT_EQ(both.source, DraftSource::kLookup);
  EXPECT_EQ(both.drafts, 2);
}

// Of a batch, those whose guesses are right get them.
TEST(DraftDepth, EachSequenceByItsOwn) {
  const Machine machine{.row = 0.15, .pass = 0.02};
  DraftDepth depth({.max_sequences = 4});
  const double alpha[] = {0.0, 0.9, 0.1, 0.95};
  for (int64_t slot = 0; slot < 4; ++slot) depth.begin(slot);
  Rng rng(11);
  std::array<int64_t, 4> drafts{};
  for (int i = 0; i < 600; ++i) {
    std::array<DraftCandidate, 4> candidates;
    for (size_t s = 0; s < 4; ++s) candidates[s] = {.slot = static_cast<int64_t>(s), .most = 6};
    depth.choose(candidates);
    int64_t all = 0, longest = 0;
    for (size_t s = 0; s < 4; ++s) {
      const int64_t n = candidates[s].drafts;
      int64_t right = 0;
      while (right < n && rng.uniform() < alpha[s]) ++right;
      depth.judged(static_cast<int64_t>(s), DraftSource::kModel, n, right);
      all += n;
      longest = std::max(longest, n);
      if (i >= 300) drafts[s] += n;
    }
    depth.drafted(4, longest, machine.draft(longest));
    depth.verified(4, all, machine.verify(4, all));
  }
  EXPECT_LT(drafts[0], 60);
  EXPECT_LT(drafts[2], 150);
  EXPECT_GT(drafts[1], 600);
  EXPECT_GE(drafts[3], drafts[1]);
}

// Guesses that were looked up are used where they are as good, being free.
TEST(DraftDepth, TheBetterSourceGuesses) {
  const Machine machine;
  const auto share_of_lookups = [&](double lookup, double model) {
    DraftDepth depth({});
    depth.begin(0);
    Rng rng(13);
    int64_t looked_up = 0;
    for (int i = 0; i < 600; ++i) {
      DraftCandidate candidate{.slot = 0, .most = 4, .found = 4};
      depth.choose(std::span(&candidate, 1));
      const bool is_lookup = candidate.source == DraftSource::kLookup;
      const int64_t n = candidate.drafts;
      int64_t right = 0;
      while (right < n && rng.uniform() < (is_lookup ? lookup : model)) ++right;
      depth.judged(0, candidate.source, n, right);
      depth.drafted(1, is_lookup ? 0 : n, machine.draft(is_lookup ? 0 : n));
      depth.verified(1, n, machine.verify(1, n));
      if (i >= 200) looked_up += is_lookup;
    }
    return static_cast<double>(looked_up) / 400;
  };
  EXPECT_GT(share_of_lookups(0.9, 0.9), 0.9);
  EXPECT_LT(share_of_lookups(0.1, 0.9), 0.1);
}

// New sequences start from how others fared.
TEST(DraftDepth, BeginsWithWhatOthersSaw) {
  const Machine machine;
  DraftDepth depth({});
  Rng rng(17);
  for (int request = 0; request < 5; ++request) {
    depth.begin(0);
    live(depth, machine, 60, 6, [](int64_t) { return 0.05; }, rng);
  }
  depth.begin(0);
  const Life life = live(depth, machine, 20, 6, [](int64_t) { return 0.05; }, rng);
  EXPECT_LE(life.drafting_steps, 3);
}

}  // namespace
}  // namespace pewter
