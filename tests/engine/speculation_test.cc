// Drafting: whatever is guessed, and however much of it is right, every request says what it says
// without, to the last bit of its log-probabilities.

#include <gmock/gmock.h>

#include <cmath>
#include <map>
#include <numeric>
#include <set>

#include "base/rng.h"
#include "support/crowd.h"

namespace pewter {
namespace {

using test::CrowdRig;
using test::Output;
using test::read_all;
using testing::HasSubstr;

constexpr RunnerOptions kRunner{.chunk_rows = 64, .max_sequences = 4, .cache_tokens = 1024};

// Knows what each request will say, and guesses a random number of its tokens right, then wrong
// ones.
class Oracle final : public Drafter {
 public:
  explicit Oracle(std::vector<std::vector<int32_t>> texts) : texts_(std::move(texts)) {}
  Status begin(const SequenceState&, int64_t) override { return {}; }
  void read(SequenceState& state, std::span<const int32_t> prompt, int64_t begin) override {
    EXPECT_LT(begin, state.length);
    EXPECT_LE(state.length, std::ssize(prompt));
  }
  bool start(std::span<const DraftSequence> sequences) override {
    guess(sequences);
    return false;
  }
  void guess(std::span<const DraftSequence> sequences) {
    for (const DraftSequence& sequence : sequences) {
      const std::span<const int32_t> tokens = sequence.tokens;
      EXPECT_EQ(sequence.state->length + 1, std::ssize(tokens));
      EXPECT_LE(sequence.rows, sequence.state->length);
      const auto text = std::find_if(texts_.begin(), texts_.end(), [&](const auto& t) {
        return t.size() >= tokens.size() && std::equal(tokens.begin(), tokens.end(), t.begin());
      });
      ASSERT_NE(text, texts_.end()) << "a text nobody says without drafts";
      const uint64_t right = rng_.below(8);
      for (int64_t i = 0; i < sequence.most; ++i) {
        const size_t at = tokens.size() + static_cast<size_t>(i);
        const bool known = at < text->size() && static_cast<uint64_t>(i) < right;
        sequence.drafts->push_back(known ? (*text)[at] : static_cast<int32_t>(rng_.below(320)));
      }
    }
  }

 private:
  std::vector<std::vector<int32_t>> texts_;
  Rng rng_{3};
};

class Speculation : public test::RigTest {
 protected:
  // What the crowd asks for and more: every option that bears on a row.
  std::vector<Request> requests(int count, uint64_t seed) const {
    std::vector<Request> requests = test::crowd(GetParam(), count, seed);
    for (size_t i = 0; i < requests.size(); ++i) {
      Request& request = requests[i];
      if (i % 3 == 1) request.min_tokens = request.max_tokens / 2;
      if (i % 4 == 2) request.sampling.presence_penalty = 0.7f;
      if (i % 4 == 3) request.sampling.frequency_penalty = 0.4f;
      if (i % 5 == 1) request.sampling.logit_bias = {{5, 3.0f}, {9, -100.0f}};
      if (i % 5 == 2) request.ignore_stop = true;
      if (i % 2 == 0) request.top_logprobs = 3;
      if (i % 4 == 1)  // closed by force, somewhere in the middle
        request.reasoning = {.budget = static_cast<int64_t>(i % 9), .closing = {7, 8, 8, 7}};
      if (i % 6 == 5) request.max_tokens = 100000;  // to the context's end
    }
    return requests;
  }
  std::vector<Output> plainly(const std::vector<Request>& requests) const {
    CrowdRig rig(GetParam(), options());
    std::vector<Output> outputs;
    for (const Request& request : requests) outputs.push_back(rig.run(request));
    return outputs;
  }
  static EngineOptions options() { return {.runner = kRunner, .max_context = 200}; }

  static void expect_same(const Output& ours, const Output& plain, size_t i) {
    EXPECT_EQ(ours.tokens, plain.tokens) << i;
    EXPECT_EQ(ours.logprobs, plain.logprobs) << i;
    EXPECT_EQ(ours.completion.reason, plain.completion.reason) << i;
    EXPECT_EQ(ours.completion.completion_tokens, plain.completion.completion_tokens) << i;
  }
};
INSTANTIATE_TEST_SUITE_P(Backends, Speculation, testing::ValuesIn(test::small_rig_cases()),
                         test::kRigName);

TEST_P(Speculation, AnyNumberOfRightGuessesChangesNothing) {
  const std::vector<Request> requests = this->requests(16, 5);
  const std::vector<Output> plain = plainly(requests);
  std::vector<std::vector<int32_t>> texts;
  for (size_t i = 0; i < requests.size(); ++i) {
    texts.push_back(requests[i].prompt);
    texts.back().insert(texts.back().end(), plain[i].tokens.begin(), plain[i].tokens.end());
  }
  for (const int64_t tokens : {1, 3, 15}) {
    EngineOptions drafting = options();
    drafting.draft = {.method = DraftMethod::kSuffix, .tokens = tokens};
    drafting.drafter = std::make_shared<Oracle>(texts);
    CrowdRig rig(GetParam(), drafting);
    std::vector<TokenStream> streams;
    for (const Request& request : requests) streams.push_back(rig.engine->submit(request).value());
    DraftFigures total;
    for (size_t i = 0; i < requests.size(); ++i) {
      const Output output = read_all(streams[i]);
      expect_same(output, plain[i], i);
      const DraftFigures& figures = output.completion.drafts;
      EXPECT_LT(figures.accepted_tokens, output.completion.completion_tokens);
      total.drafts += figures.drafts;
      total.draft_tokens += figures.draft_tokens;
      total.accepted_tokens += figures.accepted_tokens;
      for (size_t at = 0; at < kMaxDrafts; ++at) total.accepted_at[at] += figures.accepted_at[at];
    }
    EXPECT_GT(total.accepted_tokens, 0);
    EXPECT_LT(total.accepted_tokens, total.draft_tokens);
    EXPECT_GT(total.mean_acceptance_length(), 1.4);
    // A draft is right from its beginning on: no position more often than the one before.
    EXPECT_LE(total.accepted_at[0], total.drafts);
    EXPECT_TRUE(std::ranges::is_sorted(total.accepted_at, std::greater<>()));
    EXPECT_EQ(std::accumulate(total.accepted_at.begin(), total.accepted_at.end(), int64_t{0}),
              total.accepted_tokens);
    EXPECT_TRUE(test::becomes_idle(*rig.engine));
    EXPECT_EQ(rig.engine->status().drafts, total);
    EXPECT_TRUE(rig.returned_everything());
  }
}

// The model's own drafters, beside neighbours that are cancelled at any moment.
TEST_P(Speculation, DraftersChangeNothing) {
  std::vector<Request> requests = this->requests(12, 6);
  for (Request& request : requests)  // something to find again
    if (request.prompt.size() > 20)
      std::copy_n(request.prompt.begin(), 10, request.prompt.end() - 10);
  const std::vector<Output> plain = plainly(requests);
  const DraftOptions ways[] = {
      {.method = DraftMethod::kSuffix, .tokens = 4, .shortest_match = 1},
      {.method = DraftMethod::kMtp, .tokens = 1},
      {.method = DraftMethod::kMtp, .tokens = 5},
  };
  for (const DraftOptions& way : ways) {
    EngineOptions drafting = options();
    drafting.draft = way;
    CrowdRig rig(GetParam(), drafting);
    std::vector<TokenStream> streams;
    for (const Request& request : requests) {
      TokenStream leaves = rig.engine->submit(request).value();
      streams.push_back(rig.engine->submit(request).value());
    }
    int64_t drafts = 0;
    for (size_t i = 0; i < requests.size(); ++i) {
      const Output output = read_all(streams[i]);
      expect_same(output, plain[i], i);
      drafts += output.completion.drafts.drafts;
    }
    EXPECT_GT(drafts, 0);
    EXPECT_TRUE(test::becomes_idle(*rig.engine));
    EXPECT_TRUE(rig.returned_everything());
  }
}

// However long steps seem to take, and so however much is drafted.
TEST_P(Speculation, AnyClockChangesNothing) {
  std::vector<Request> requests = this->requests(10, 8);
  for (Request& request : requests)  // something to find again
    if (request.prompt.size() > 20)
      std::copy_n(request.prompt.begin(), 10, request.prompt.end() - 10);
  const std::vector<Output> plain = plainly(requests);
  for (const DraftMethod method : {DraftMethod::kSuffix, DraftMethod::kMtp, DraftMethod::kAuto}) {
    EngineOptions drafting = options();
    drafting.draft = {
        .method = method, .tokens = 6, .depth = DraftLength::kByCost, .shortest_match = 1};
    // Drafts are long, short or none as the costs wander.
    drafting.clock = [rng = Rng(9), now = 0.0, calls = 0]() mutable {
      return now += (++calls / 40 % 2 == 0 ? 0.1 : 1.0) * rng.uniform();
    };
    CrowdRig rig(GetParam(), drafting);
    std::vector<TokenStream> streams;
    for (const Request& request : requests) streams.push_back(rig.engine->submit(request).value());
    DraftFigures total;
    int64_t tokens = 0;
    for (size_t i = 0; i < requests.size(); ++i) {
      const Output output = read_all(streams[i]);
      expect_same(output, plain[i], i);
      total += output.completion.drafts;
      tokens += output.completion.completion_tokens;
    }
    EXPECT_GT(total.drafts, 0);
    EXPECT_LT(total.draft_tokens, 6 * total.drafts);
    EXPECT_LT(total.drafts, tokens - total.accepted_tokens);  // some steps had none
    EXPECT_TRUE(test::becomes_idle(*rig.engine));
    EXPECT_TRUE(rig.returned_everything());
  }
}

// A prompt cut elsewhere: with drafts as without them, and both ways alike within what prefill
// promises (the reference path to a few ulps, bf16 activations to some percent of a logit).
TEST_P(Speculation, PromptsMayBeCutElsewhere) {
  const std::vector<int32_t> prompt = tokens(150, 41);
  const Request request{.prompt = prompt, .sampling = {.temperature = 0}, .max_tokens = 20};
  std::vector<Output> outputs;
  for (const int64_t chunk : {64, 128, 192}) {
    EngineOptions cut = options();
    cut.runner.chunk_rows = chunk;
    const Output plain = CrowdRig(GetParam(), cut).run(request);
    cut.draft = {.method = DraftMethod::kMtp, .tokens = 3};
    outputs.push_back(CrowdRig(GetParam(), cut).run(request));
    expect_same(outputs.back(), plain, static_cast<size_t>(chunk));
    EXPECT_GT(outputs.back().completion.drafts.drafts, 0);
  }
  const double bound = GetParam().is_exact() ? 1e-5 : 0.1;
  for (const Output& other : outputs) {
    EXPECT_NEAR(other.logprobs[0], outputs[0].logprobs[0], bound);
    if (GetParam().is_exact()) {
      EXPECT_EQ(other.tokens, outputs[0].tokens);
    }
  }
}

// What was guessed wrong is not seen again: a sequence is drafted for as one that never guessed.
TEST_P(Speculation, WrongGuessesLeaveNoTraceInTheMtpCache) {
  const auto rig = test::TestRig::make(GetParam(), {.chunk_rows = 64, .decode_rows = 6});
  ModelRunner& runner = *rig->runner;
  const auto drafter = make_drafter({.method = DraftMethod::kMtp, .tokens = 5}, nullptr, runner,
                                    *rig->backend.device, *rig->backend.ops)
                           .value();
  // Long enough that what waits for a drafter that is not used is more than may wait.
  constexpr size_t kEnd = 86;
  const std::vector<int32_t> text = tokens(kEnd + 2, 21);
  // Two of `rows` are right in every step; logits of the last draft, which is one token.
  const auto last_logits = [&](int64_t most, const std::vector<int32_t>& wrong) {
    const std::span<const int32_t> right(text);
    SequenceState state = rig->open(128);
    EXPECT_TRUE(drafter->begin(state, 128));
    rig->prefill(state, right.first(29));
    drafter->read(state, right.first(29), 0);
    DraftSequence sequence{.state = &state, .first_row = 28, .rows = 1};
    for (size_t known = 30; known <= kEnd; known += 2) {
      sequence.tokens = right.first(known);
      sequence.most = known == kEnd ? 1 : most;
      std::vector<int32_t> drafts;
      drafts.reserve(6);
      sequence.drafts = &drafts;
      drafter->draft(std::span(&sequence, 1));
      EXPECT_EQ(std::ssize(drafts), sequence.most);
      if (known == kEnd) break;
      std::vector<int32_t> rows(text.begin() + static_cast<int64_t>(known) - 1,
                                text.begin() + static_cast<int64_t>(known) + 1);
      rows.insert(rows.end(), wrong.begin(), wrong.end());
      rig->decode(state, rows);
      runner.accept(state, 2);
      sequence.first_row = 0;
      sequence.rows = 2;
    }
    runner.close(state);
    return rig->logits();
  };
  // First, while the pages hold nothing that would do as well.
  const test::Rows undrafted = last_logits(0, {3, 1, 4, 1});
  const test::Rows clean = last_logits(1, {});
  ASSERT_EQ(clean.size(), 1u);
  EXPECT_EQ(last_logits(5, {3, 1, 4, 1}), clean);
  // Nor did steps for which nothing was drafted leave holes.
  EXPECT_EQ(undrafted, clean);
}

// Pairs of sampled tokens, over many seeds, are as often drawn with drafts as the model's own
// probabilities say. The seeds of the draws differ from those without drafts, so equal bits are not
// what is tested: a top-k of 4 leaves 16 pairs.
TEST_P(Speculation, SampledPairsAreDistributedAsTheModelSays) {
  constexpr int kTrials = 1500;
  if (GetParam().is_exact()) GTEST_SKIP() << "the reference path takes long";
  const Request request{.prompt = tokens(12, 31),
                        .sampling = {.temperature = 0.9f, .top_k = 4, .presence_penalty = 0.4f},
                        .max_tokens = 4,
                        .ignore_stop = true,
                        .top_logprobs = 20};
  const auto count_pairs = [&](const DraftOptions& draft, uint64_t first_seed) {
    EngineOptions options = this->options();
    options.draft = draft;
    CrowdRig rig(GetParam(), options);
    std::map<std::pair<int32_t, int32_t>, int> pairs;
    std::vector<TokenStream> streams;
    const auto read_first = [&] {
      const Output output = read_all(streams.front());
      ++pairs[{output.tokens[1], output.tokens[2]}];
      streams.erase(streams.begin());
    };
    for (uint64_t seed = 0; seed < kTrials; ++seed) {
      Request seeded = request;
      seeded.sampling.seed = first_seed + seed;
      streams.push_back(rig.engine->submit(seeded).value());
      if (streams.size() >= 4) read_first();
    }
    while (!streams.empty()) read_first();
    return pairs;
  };
  const auto plain = count_pairs({}, 0);
  const auto drafted = count_pairs({.method = DraftMethod::kMtp, .tokens = 3}, 1000000);
  // Two samples of one distribution: Σ (a - b)² / (a + b), rare pairs together.
  double chi = 0, rare_a = 0, rare_b = 0;
  int cells = 0;
  std::set<std::pair<int32_t, int32_t>> keys;
  for (const auto& [pair, n] : plain) keys.insert(pair);
  for (const auto& [pair, n] : drafted) keys.insert(pair);
  const auto of = [](const auto& pairs, const auto& key) {
    const auto found = pairs.find(key);
    return found == pairs.end() ? 0.0 : static_cast<double>(found->second);
  };
  for (const auto& key : keys) {
    const double a = of(plain, key), b = of(drafted, key);
    if (a + b < 20) {
      rare_a += a;
      rare_b += b;
      continue;
    }
    chi += (a - b) * (a - b) / (a + b);
    ++cells;
  }
  if (rare_a + rare_b > 0) chi += (rare_a - rare_b) * (rare_a - rare_b) / (rare_a + rare_b);
  ASSERT_GT(cells, 8);
  // Mean cells, variance 2·cells: beyond four deviations once in ten thousand.
  EXPECT_LT(chi, cells + 4 * std::sqrt(2.0 * cells)) << cells << " kinds of pairs";
}

TEST_P(Speculation, MtpNeedsItsLayer) {
  CrowdRig rig(GetParam(), options());
  rig.model.weights.mtp.reset();
  EngineOptions drafting = options();
  drafting.draft = {.method = DraftMethod::kMtp, .tokens = 2};
  const auto refused = Engine::make(rig.model, *rig.backend.device, *rig.backend.ops, drafting);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, ErrorCode::kNotFound);
  EXPECT_THAT(refused.error().message, HasSubstr("mtp.fc"));
  drafting.draft.method = DraftMethod::kAuto;
  EXPECT_TRUE(Engine::make(rig.model, *rig.backend.device, *rig.backend.ops, drafting));
}

TEST_P(Speculation, BadOptionsAreNamed) {
  CrowdRig rig(GetParam(), options());
  const auto refused = [&](const DraftOptions& draft, const char* why) {
    EngineOptions bad = options();
    bad.draft = draft;
    const auto engine = Engine::make(rig.model, *rig.backend.device, *rig.backend.ops, bad);
    ASSERT_FALSE(engine) << why;
    EXPECT_EQ(engine.error().code, ErrorCode::kInvalidArgument);
    EXPECT_THAT(engine.error().message, HasSubstr(why));
  };
  refused({.method = DraftMethod::kSuffix, .tokens = 16}, "num_speculative_tokens: 16");
  refused({.method = DraftMethod::kSuffix, .tokens = 2, .shortest_match = 0},
          "prompt_lookup_min: 0");
  refused({.method = DraftMethod::kSuffix, .tokens = 2, .shortest_match = 65},
          "prompt_lookup_min: 65");
}

}  // namespace
}  // namespace pewter
