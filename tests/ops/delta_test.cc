// The Gated DeltaNet mixer: decode and prefill against the reference's recurrence, and the laws of
// the tape: however rows are grouped, accepted or folded, the same rows leave the same bits.

#include "ops/delta_rig.h"
#include "ops/tolerance.h"

namespace pewter::test {
namespace {

class Delta : public OpTest<DeltaShape> {
 protected:
  const DeltaShape& shape() const { return tested(); }
  int64_t width() const { return shape().out_width(); }

  void expect_close_outputs(const Floats& have, const Floats& want, int64_t history,
                            const std::string& what) const {
    // Relative to the largest output of the same row and head.
    const int64_t dv = shape().value_dim;
    expect_close(
        have, want,
        [&](int64_t i, double value) {
          double largest = 0;
          for (int64_t c = i / dv * dv; c < (i / dv + 1) * dv; ++c)
            largest =
                std::max(largest, std::abs(static_cast<double>(want[static_cast<size_t>(c)])));
          return rounded(value, delta_error(history, shape().key_dim) * largest, DType::kBF16);
        },
        what);
  }
  void expect_close_states(const Floats& have, const Floats& want, int64_t history,
                           const std::string& what) const {
    double largest = 0;
    for (const float s : want) largest = std::max(largest, std::abs(static_cast<double>(s)));
    expect_close(
        have, want,
        [&](int64_t, double) { return delta_error(history, shape().key_dim) * largest; }, what);
  }
  static void expect_same_slot(const DeltaRig& have, int64_t slot, const DeltaRig& want,
                               int64_t want_slot, const std::string& what) {
    expect_same_bits(have.state(slot), want.state(want_slot), what + ": state");
    expect_same_bits(have.window(slot), want.window(want_slot), what + ": window");
  }
  static Floats rows_of(const Floats& all, int64_t first, int64_t count, int64_t width) {
    return {all.begin() + first * width, all.begin() + (first + count) * width};
  }
};

TEST_P(Delta, DecodeMatchesTheReference) {
  const auto reference = make_reference(), fast = make_fast(2);
  DeltaRig want(*reference, shape()), have(*fast, shape());
  // Three sequences of different lengths a step, with parts of their tapes accepted.
  std::vector<int64_t> offered(3, 0);
  Rng rng(1);
  int64_t first = 0;
  for (int64_t step = 0; step < 10; ++step) {
    std::vector<DeltaRig::Part> parts;
    for (int64_t s = 0; s < 3; ++s) {
      const int64_t before = offered[static_cast<size_t>(s)];
      const auto accepted = static_cast<int64_t>(rng.below(static_cast<uint64_t>(before + 1)));
      const int64_t rows = step == 4 ? 16 : 1 + static_cast<int64_t>(rng.below(8));
      parts.push_back({.slot = s * 2 + 1, .accepted = accepted, .first = first, .rows = rows});
      offered[static_cast<size_t>(s)] = rows;
      first += rows;
    }
    expect_close_outputs(have.decode(parts), want.decode(parts), first, str_cat("step ", step));
  }
  for (int64_t s = 0; s < 3; ++s) {
    have.fold(s * 2 + 1, offered[static_cast<size_t>(s)]);
    want.fold(s * 2 + 1, offered[static_cast<size_t>(s)]);
    expect_close_states(have.state(s * 2 + 1), want.state(s * 2 + 1), first, "state");
    expect_same_bits(have.window(s * 2 + 1), want.window(s * 2 + 1), "window");
  }
}

TEST_P(Delta, PrefillMatchesTheReference) {
  for (const int64_t rows : kRowCounts) {
    const auto reference = make_reference(), fast = make_fast(2);
    DeltaRig want(*reference, shape()), have(*fast, shape());
    // Behind a state, a window and two accepted rows of a tape of three.
    for (DeltaRig* rig : {&want, &have}) {
      rig->prefill({.slot = 3, .first = 200, .rows = 20});
      rig->decode({{.slot = 3, .first = 230, .rows = 3}});
    }
    const DeltaRig::Part part{.slot = 3, .accepted = 2, .first = 0, .rows = rows};
    expect_close_outputs(have.prefill(part), want.prefill(part), rows + 22,
                         str_cat("prefill of ", rows));
    expect_close_states(have.state(3), want.state(3), rows + 22, "state");
    expect_same_bits(have.window(3), want.window(3), "window");
  }
}

// Every count of accepted rows, by the next step and by fold.
TEST_P(Delta, EveryAcceptedCountMatchesTheReference) {
  const auto reference = make_reference(), fast = make_fast(2);
  DeltaRig want(*reference, shape()), have(*fast, shape());
  for (int64_t accepted = 0; accepted <= kMaxDecodeRows; ++accepted) {
    const int64_t slot = accepted % 4, folded = 4 + slot;
    for (DeltaRig* rig : {&want, &have})
      for (const int64_t s : {slot, folded}) {
        rig->prefill({.slot = s, .first = 300, .rows = 5});
        rig->decode({{.slot = s, .first = 3 * accepted, .rows = kMaxDecodeRows}});
      }
    const std::string what = str_cat(accepted, " accepted");
    const std::vector<DeltaRig::Part> next = {
        {.slot = slot, .accepted = accepted, .first = 100, .rows = 2}};
    // Slots go on from their last round: at most five of 5 + 16 rows.
    expect_close_outputs(have.decode(next), want.decode(next), 5 * 21 + 2, what);
    have.fold(folded, accepted);
    want.fold(folded, accepted);
    for (const int64_t s : {slot, folded}) {
      expect_close_states(have.state(s), want.state(s), 5 * 21, what);
      expect_same_bits(have.window(s), want.window(s), what);
    }
  }
}

// One step of n rows, then accepting them, equals n steps of one row: outputs, state and window.
TEST_P(Delta, GroupingRowsLeavesNoTrace) {
  const auto ops = make_fast(2);
  for (const int64_t n : {2, 3, 8, 16}) {
    DeltaRig rig(*ops, shape());
    for (const int64_t slot : {0, 1}) rig.prefill({.slot = slot, .first = 100, .rows = 10});
    const Floats together = rig.decode({{.slot = 0, .first = 0, .rows = n}});
    for (int64_t i = 0; i < n; ++i) {
      const Floats alone = rig.decode({{.slot = 1, .accepted = i > 0, .first = i, .rows = 1}});
      expect_same_bits(alone, rows_of(together, i, 1, width()), str_cat("row ", i, " of ", n));
    }
    rig.fold(0, n);
    rig.fold(1, 1);
    expect_same_slot(rig, 0, rig, 1, str_cat(n, " rows"));
  }
}

// Accepting a of n rows and going on equals never having seen the others.
TEST_P(Delta, RejectedRowsLeaveNoTrace) {
  const auto ops = make_fast();
  DeltaRig rig(*ops, shape());
  for (const int64_t a : {0, 1, 2, 3, 5}) {
    for (const int64_t slot : {2, 3})
      rig.prefill({.slot = slot, .first = 150, .rows = 7});  // goes on from the last round's state
    rig.decode({{.slot = 2, .first = 0, .rows = 6}});
    Floats want;
    for (int64_t i = 0; i < a; ++i)
      rig.decode({{.slot = 3, .accepted = i > 0, .first = i, .rows = 1}});
    const Floats have = rig.decode({{.slot = 2, .accepted = a, .first = 50, .rows = 2}});
    want = rig.decode({{.slot = 3, .accepted = a > 0, .first = 50, .rows = 2}});
    expect_same_bits(have, want, str_cat(a, " accepted"));
    rig.fold(2, 2);
    rig.fold(3, 2);
    expect_same_slot(rig, 2, rig, 3, str_cat(a, " accepted"));
  }
}

TEST_P(Delta, FoldIsWhatTheNextStepDoes) {
  const auto ops = make_fast();
  for (const int64_t a : {0, 1, 2, 4, 16}) {
    DeltaRig rig(*ops, shape());
    for (const int64_t slot : {0, 1}) {
      rig.prefill({.slot = slot, .first = 100, .rows = 5});
      rig.decode({{.slot = slot, .first = 0, .rows = 16}});
    }
    rig.fold(0, a);
    const Floats after_fold = rig.decode({{.slot = 0, .first = 20, .rows = 3}});
    const Floats directly = rig.decode({{.slot = 1, .accepted = a, .first = 20, .rows = 3}});
    expect_same_bits(after_fold, directly, str_cat("rows after folding ", a));
    expect_same_slot(rig, 0, rig, 1, str_cat("folding ", a));
    // And before a prefill.
    rig.fold(0, 2);
    expect_same_bits(rig.prefill({.slot = 0, .first = 30, .rows = 70}),
                     rig.prefill({.slot = 1, .accepted = 2, .first = 30, .rows = 70}),
                     "prefill after fold");
    expect_same_slot(rig, 0, rig, 1, "prefill after fold");
  }
}

// A step that commits nothing leaves state and window alone.
TEST_P(Delta, DecodeCommitsNoGuess) {
  const auto ops = make_fast();
  DeltaRig rig(*ops, shape()), before(*ops, shape());
  rig.prefill({.slot = 0, .first = 0, .rows = 9});
  before.prefill({.slot = 0, .first = 0, .rows = 9});
  rig.decode({{.slot = 0, .first = 20, .rows = 16}});
  expect_same_slot(rig, 0, before, 0, "after a step");
}

TEST_P(Delta, PrefillSplitAtChunksKeepsItsBits) {
  const auto ops = make_fast(2);
  constexpr int64_t kRows = 150;
  DeltaRig rig(*ops, shape());
  const Floats whole = rig.prefill({.slot = 0, .first = 0, .rows = kRows});
  int64_t slot = 1;
  for (const int64_t cut : {64, 128}) {
    Floats parts = rig.prefill({.slot = slot, .first = 0, .rows = cut});
    const Floats rest = rig.prefill({.slot = slot, .first = cut, .rows = kRows - cut});
    parts.insert(parts.end(), rest.begin(), rest.end());
    expect_same_bits(parts, whole, str_cat("cut at ", cut));
    expect_same_slot(rig, slot++, rig, 0, str_cat("cut at ", cut));
  }
}

TEST_P(Delta, DecodeAgreesWithPrefill) {
  const auto ops = make_fast();
  constexpr int64_t kRows = 96;
  DeltaRig rig(*ops, shape());
  const Floats want = rig.prefill({.slot = 0, .first = 0, .rows = kRows});
  for (int64_t row = 0; row < kRows; row += 16)
    expect_close_outputs(
        rig.decode({{.slot = 1, .accepted = row > 0 ? 16 : 0, .first = row, .rows = 16}}),
        rows_of(want, row, 16, width()), row + 16, str_cat("rows from ", row));
  rig.fold(1, 16);
  expect_close_states(rig.state(1), rig.state(0), kRows, "state");
}

TEST_P(Delta, OtherSequencesAndThreadsLeaveNoTrace) {
  const std::vector<DeltaRig::Part> crowd = {{.slot = 5, .first = 40, .rows = 3},
                                             {.slot = 0, .first = 0, .rows = 5},
                                             {.slot = 2, .first = 60, .rows = 16}};
  const auto one = make_fast(1);
  DeltaRig alone(*one, shape());
  const Floats want = alone.decode({crowd[1]});
  alone.fold(0, 5);
  DeltaRig prefilled(*one, shape());
  const Floats want_prefill = prefilled.prefill({.slot = 0, .first = 0, .rows = 130});
  for (const int threads : {1, 2, 3}) {
    const auto ops = make_fast(threads);
    DeltaRig rig(*ops, shape());
    expect_same_bits(rows_of(rig.decode(crowd), 3, 5, width()), want, str_cat(threads, " threads"));
    rig.fold(0, 5);
    expect_same_slot(rig, 0, alone, 0, str_cat(threads, " threads"));
    expect_same_bits(rig.prefill({.slot = 1, .first = 0, .rows = 130}), want_prefill, "prefill");
    expect_same_slot(rig, 1, prefilled, 0, "prefill");
  }
}

const auto kShapes =
    testing::Values(DeltaShape{"tiny", 2, 6, 16, 24}, DeltaShape{"odd", 1, 3, 40, 20},
                    DeltaShape{"real", 2, 4, 128, 128}, DeltaShape{"real4", 2, 8, 128, 128});
const auto kName = [](const auto& tested) { return std::get<1>(tested.param).name; };
INSTANTIATE_TEST_SUITE_P(Cpu, Delta, testing::Combine(testing::Values(Target::kCpu), kShapes),
                         kName);
INSTANTIATE_TEST_SUITE_P(Cuda, Delta, testing::Combine(testing::ValuesIn(cuda_target()), kShapes),
                         kName);

}  // namespace
}  // namespace pewter::test
