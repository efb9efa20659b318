// The laws of docs/architecture.md that a runner's caller relies on, on random models: prefill and
// decode agree, a decode row keeps its bits whatever is beside it, accept(n) equals n plain steps.

#include <gmock/gmock.h>

#include "support/test_rig.h"

namespace pewter {
namespace {

using test::relative_difference;
using test::RigCase;
using test::Rows;
using test::TestRig;

class RunnerLaws : public test::RigTest {
 protected:
  // Logits of one text computed by prefill and by decode. The reference runs the same arithmetic in
  // both phases; the fast path's prefill rounds elsewhere (bf16 activations, chunked delta rule).
  // The bound is ten bf16 epsilon (2^-8) on the worst logit, over their root mean square; the
  // largest measured on these models is 0.013.
  void expect_same_text(const std::vector<float>& a, const std::vector<float>& b) const {
    EXPECT_LE(relative_difference(a, b), GetParam().is_exact() ? 0 : 0.04);
  }
};
INSTANTIATE_TEST_SUITE_P(Backends, RunnerLaws, testing::ValuesIn(test::rig_cases()),
                         test::kRigName);

TEST_P(RunnerLaws, DecodeContinuesWherePrefillStopped) {
  const auto rig = TestRig::make(GetParam(), {.chunk_rows = 64, .max_sequences = 2});
  const std::vector<int32_t> text = tokens(70, 1);
  SequenceState whole = rig->open(70);
  const std::vector<float> expected = rig->prefill(whole, text);
  for (const int64_t split : {int64_t{1}, int64_t{40}, int64_t{63}, int64_t{64}}) {
    SequenceState parts = rig->open(70);
    rig->prefill(parts, std::span(text).first(static_cast<size_t>(split)));
    const Rows steps = rig->steps(parts, std::span(text).subspan(static_cast<size_t>(split)));
    SCOPED_TRACE(testing::Message() << "split at " << split);
    expect_same_text(steps.back(), expected);
    EXPECT_EQ(whole.length, parts.length);
    rig->runner->close(parts);
  }
}

TEST_P(RunnerLaws, PrefillInChunksIsItself) {
  const std::vector<int32_t> text = tokens(150, 2);
  std::vector<float> first;
  for (const int64_t chunk : {512, 128, 64}) {
    const auto rig = TestRig::make(GetParam(), {.chunk_rows = chunk});
    SequenceState sequence = rig->open(160);
    std::vector<float> logits = rig->prefill(sequence, text);
    const Rows next = rig->steps(sequence, tokens(2, 3));  // the states agree too
    logits.insert(logits.end(), next.back().begin(), next.back().end());
    if (first.empty()) first = logits;
    EXPECT_EQ(logits, first) << "chunks of " << chunk;
  }
}

// Five sequences with different histories, tapes and row counts, in all kinds of company.
TEST_P(RunnerLaws, DecodeRowsKeepTheirBits) {
  constexpr size_t kSequences = 5;
  constexpr int64_t kRows[kSequences] = {1, 16, 3, 8, 2};
  constexpr int64_t kPrompt[kSequences] = {70, 1, 64, 17, 33},
                    kAccepted[kSequences] = {2, 0, 4, 1, 3};
  const auto rig = TestRig::make(
      GetParam(), {.chunk_rows = 128, .max_sequences = 2 * kSequences, .decode_rows = 16});
  std::vector<SequenceState> bases;
  for (size_t s = 0; s < kSequences; ++s)
    rig->prefill(bases.emplace_back(rig->open(128)), tokens(kPrompt[s], 100 + s));
  std::vector<std::vector<int32_t>> drafts;
  // Every company starts from copies of these histories, each with a tape of its own.
  const auto run = [&](const std::vector<size_t>& company) {
    std::vector<SequenceState> states;
    for (const size_t s : company) {
      SequenceState& state = states.emplace_back(rig->copy(bases[s], *rig, 128));
      rig->decode(state, tokens(4, 200 + s));
      rig->runner->accept(state, kAccepted[s]);
    }
    drafts.clear();
    for (const size_t s : company) drafts.push_back(tokens(kRows[s], 300 + s));
    std::vector<SequenceRows> step;
    for (size_t i = 0; i < company.size(); ++i)
      step.push_back({.sequence = &states[i], .tokens = drafts[i], .logits = LogitsWanted::kAll});
    Rows rows = rig->decode(step);
    for (SequenceState& state : states) rig->runner->close(state);
    return rows;
  };
  std::vector<Rows> alone;
  for (size_t s = 0; s < kSequences; ++s) alone.push_back(run({s}));
  const std::vector<std::vector<size_t>> companies = {
      {0, 1}, {1, 0}, {2, 3, 0}, {4, 3, 2, 1}, {0, 1, 2, 3, 4}, {4, 2, 0, 1, 3}};
  for (const std::vector<size_t>& company : companies) {
    const Rows rows = run(company);
    size_t at = 0;
    for (const size_t s : company)
      for (const std::vector<float>& expected : alone[s])
        ASSERT_EQ(rows[at++], expected) << "sequence " << s << " among " << company.size();
    EXPECT_EQ(at, rows.size());
  }
}

// A device may record its steps and replay them: nothing of that shows.
TEST_P(RunnerLaws, ReplayedStepsAreTheSteps) {
  const RunnerOptions options{.chunk_rows = 64, .max_sequences = 3, .decode_rows = 8};
  const auto replaying = TestRig::make(GetParam(), options),
             eager = TestRig::make(GetParam(), options);
  eager->runner->set_replay(false);
  std::vector<Rows> rows;
  std::vector<std::vector<std::byte>> slots;
  for (TestRig* rig : {replaying.get(), eager.get()}) {
    std::vector<SequenceState> states;
    for (uint64_t s = 0; s < 3; ++s)
      rig->prefill(states.emplace_back(rig->open(192)),
                   tokens(5 + 30 * static_cast<int64_t>(s), s));
    Rows& all = rows.emplace_back();
    const auto keep = [&all](Rows some) {
      for (std::vector<float>& row : some) all.push_back(std::move(row));
    };
    // Each of three shapes of step four times: as it comes, recorded, replayed, replayed.
    for (uint64_t round = 0; round < 4; ++round) {
      const std::vector<int32_t> text = tokens(8, 50 + round);
      std::vector<SequenceRows> step;
      for (SequenceState& state : states)
        step.push_back({.sequence = &state,
                        .tokens = std::span(text).first(1 + 3 * step.size()),
                        .logits = LogitsWanted::kAll});
      keep(rig->decode(step));
      for (size_t s = 0; s < 3; ++s)
        rig->runner->accept(states[s], static_cast<int64_t>(round % (1 + 3 * s)));
      keep(rig->steps(states[round % 3], std::span(text).first(1)));
      const SequenceRows last[] = {{.sequence = &states[0], .tokens = std::span(text).first(2)},
                                   {.sequence = &states[2], .tokens = std::span(text).first(1)}};
      keep(rig->decode(last));
      rig->runner->accept(states[0], static_cast<int64_t>(round % 3));
      rig->runner->accept(states[2], 1);
    }
    for (SequenceState& state : states) slots.push_back(rig->export_slot(state));
  }
  EXPECT_EQ(rows[0], rows[1]);
  for (size_t s = 0; s < 3; ++s) EXPECT_EQ(slots[s], slots[3 + s]) << "sequence " << s;
}

// A row's bits do not depend on how many rows of its own sequence are in the step either.
TEST_P(RunnerLaws, VerifyingIsDecoding) {
  const auto rig =
      TestRig::make(GetParam(), {.chunk_rows = 64, .max_sequences = 2, .decode_rows = 16});
  const std::vector<int32_t> prompt = tokens(21, 4), text = tokens(16, 5);
  SequenceState plain = rig->open(64), verified = rig->open(64);
  rig->prefill(plain, prompt);
  rig->prefill(verified, prompt);
  const Rows expected = rig->steps(plain, text);
  for (const size_t m : {size_t{1}, size_t{2}, size_t{3}, size_t{5}, size_t{8}, size_t{16}}) {
    const Rows rows = rig->decode(verified, std::span(text).first(m));
    for (size_t i = 0; i < m; ++i) ASSERT_EQ(rows[i], expected[i]) << "row " << i << " of " << m;
  }
}

TEST_P(RunnerLaws, AcceptingRowsEqualsPlainSteps) {
  const auto rig =
      TestRig::make(GetParam(), {.chunk_rows = 64, .max_sequences = 3, .decode_rows = 16});
  const std::vector<int32_t> prompt = tokens(61, 6), next = tokens(4, 7), more = tokens(6, 8);
  SequenceState base = rig->open(64);
  rig->prefill(base, prompt);
  for (const size_t m : {size_t{1}, size_t{3}, size_t{5}, size_t{16}}) {
    const std::vector<int32_t> draft = tokens(static_cast<int64_t>(m), 9);
    for (size_t n = 0; n <= m; n += n == 5 ? 11 : 1) {
      SCOPED_TRACE(testing::Message() << n << " of " << m << " accepted");
      SequenceState plain = rig->copy(base, *rig, 128), verified = rig->copy(base, *rig, 128);
      rig->steps(plain, std::span(draft).first(n));
      rig->decode(verified, draft);
      rig->runner->accept(verified, static_cast<int64_t>(n));
      EXPECT_EQ(verified.length, plain.length);
      // Following steps: one row, several rows with a part accepted, a prefill chunk.
      EXPECT_EQ(rig->steps(verified, std::span(next).first(1)),
                rig->steps(plain, std::span(next).first(1)));
      EXPECT_EQ(rig->decode(verified, next), rig->decode(plain, next));
      rig->runner->accept(verified, 2);
      rig->runner->accept(plain, 2);
      rig->runner->fold(plain);  // a chunk applies the tape once, as folding does
      EXPECT_EQ(rig->prefill(verified, more), rig->prefill(plain, more));
      EXPECT_EQ(rig->export_slot(verified), rig->export_slot(plain));
      rig->runner->close(plain);
      rig->runner->close(verified);
    }
  }
}

// A step that is never accepted leaves no trace, however often it is tried.
TEST_P(RunnerLaws, AbandonedStepsLeaveNoTrace) {
  const auto rig =
      TestRig::make(GetParam(), {.chunk_rows = 64, .max_sequences = 2, .decode_rows = 8});
  const std::vector<int32_t> prompt = tokens(10, 10), text = tokens(3, 11);
  SequenceState calm = rig->open(64), busy = rig->open(64);
  rig->prefill(calm, prompt);
  rig->prefill(busy, prompt);
  rig->steps(calm, text);
  for (size_t i = 0; i < text.size(); ++i) {
    for (uint64_t attempt = 0; attempt < 3; ++attempt)
      rig->decode(busy, tokens(1 + static_cast<int64_t>(attempt) * 3, 40 + attempt));
    rig->runner->accept(busy, 0);
    rig->steps(busy, std::span(text).subspan(i, 1));
  }
  EXPECT_EQ(rig->steps(busy, prompt), rig->steps(calm, prompt));
}

// Which rows' logits are asked for does not change them.
TEST_P(RunnerLaws, LogitsOfChosenRows) {
  const auto rig = TestRig::make(
      GetParam(), {.chunk_rows = 64, .max_sequences = 2, .decode_rows = 4, .logits_rows = 64});
  const std::vector<int32_t> prompt = tokens(9, 12), draft = tokens(4, 13);
  SequenceState a = rig->open(64), b = rig->open(64);
  rig->runner->prefill({.sequence = &a, .tokens = prompt, .logits = LogitsWanted::kAll});
  const Rows all = rig->logits();
  ASSERT_EQ(all.size(), prompt.size());
  rig->runner->prefill({.sequence = &b, .tokens = prompt, .logits = LogitsWanted::kNone});
  EXPECT_TRUE(rig->logits().empty());
  EXPECT_NE(all[0], all[1]);

  const SequenceRows step[] = {{.sequence = &a, .tokens = draft, .logits = LogitsWanted::kLast},
                               {.sequence = &b, .tokens = draft, .logits = LogitsWanted::kAll}};
  const Rows chosen = rig->decode(step);
  ASSERT_EQ(chosen.size(), 5u);
  EXPECT_EQ(chosen[0], chosen[4]);  // a and b have the same history
}

TEST_P(RunnerLaws, ThreadsDoNotChangeBits) {
  std::vector<Rows> results;
  for (const int threads : {1, 2, 3}) {
    RigCase rig_case = GetParam();
    rig_case.threads = threads;
    const auto rig =
        TestRig::make(rig_case, {.chunk_rows = 64, .decode_rows = 8, .logits_rows = 64});
    SequenceState sequence = rig->open(128);
    rig->runner->prefill(
        {.sequence = &sequence, .tokens = tokens(50, 16), .logits = LogitsWanted::kAll});
    Rows& rows = results.emplace_back(rig->logits());
    for (std::vector<float>& row : rig->decode(sequence, tokens(7, 17)))
      rows.push_back(std::move(row));
    rig->runner->accept(sequence, 5);
    rows.push_back(rig->steps(sequence, tokens(1, 18)).front());
  }
  EXPECT_EQ(results[1], results[0]);
  EXPECT_EQ(results[2], results[0]);
}

// The MTP layer in a runner's hands: over the prompt in one chunk, then over drafts.
TEST_P(RunnerLaws, MtpLayerRuns) {
  const auto rig =
      TestRig::make(GetParam(), {.chunk_rows = 64, .decode_rows = 4, .logits_rows = 64});
  ASSERT_EQ(rig->model.kv_layers(), 2);
  const std::vector<int32_t> prompt = tokens(20, 14), shifted = tokens(20, 15);
  const auto run = [&](Phase phase, SequenceState& sequence, std::span<const int32_t> text,
                       LogitsWanted wanted) {
    const SequenceRows rows{.sequence = &sequence, .tokens = text, .logits = wanted};
    const Batch& batch = rig->runner->make_batch(phase, std::span(&rows, 1));
    forward_mtp(*rig->backend.ops, rig->model, batch, rig->runner->pool(),
                rig->runner->mutable_activations());
    return rig->logits();
  };
  const auto keep_hidden = [&] {  // the target's hidden becomes the MTP layer's input
    const Activations& act = rig->runner->activations();
    rig->backend.ops->copy({.from = act.hidden, .to = act.mtp_hidden});
  };
  SequenceState sequence = rig->open(64);
  rig->prefill(sequence, prompt);
  keep_hidden();
  sequence.length = 0;  // the MTP layer's cache is as long as its own rows
  const Rows whole = run(Phase::kPrefill, sequence, shifted, LogitsWanted::kAll);
  ASSERT_EQ(whole.size(), shifted.size());
  for (const std::vector<float>& row : whole)
    for (const float logit : row) ASSERT_TRUE(std::isfinite(logit));
  EXPECT_NE(whole[3], whole[4]);
  // The last rows again, as a decode step behind the others: mtp_hidden's first rows must be
  // theirs.
  sequence.length = 16;
  const TensorView hidden = rig->runner->activations().mtp_hidden;
  rig->backend.ops->copy({.from = hidden.slice(0, 16, 20), .to = hidden.slice(0, 0, 4)});
  const Rows last =
      run(Phase::kDecode, sequence, std::span(shifted).subspan(16), LogitsWanted::kAll);
  for (size_t i = 0; i < 4; ++i) expect_same_text(last[i], whole[16 + i]);
}

}  // namespace
}  // namespace pewter
