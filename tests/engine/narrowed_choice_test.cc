// What a request takes out of the model's choice, ids and lists of ids, and how likely a prompt
// was: the same whatever is drafted and whoever is beside it.
#include <gmock/gmock.h>

#include <set>

#include "support/crowd.h"

namespace pewter {
namespace {

using test::CrowdRig;
using test::Output;
using test::read_all;
using testing::HasSubstr;

const DraftOptions kWays[] = {{},
                              {.method = DraftMethod::kSuffix, .tokens = 5, .shortest_match = 1},
                              {.method = DraftMethod::kMtp, .tokens = 3}};

class NarrowedChoice : public test::RigTest {
 protected:
  static EngineOptions options(const DraftOptions& draft = {}) {
    return {.runner = {.chunk_rows = 64, .max_sequences = 4, .cache_tokens = 1024},
            .max_context = 250,
            .draft = draft};
  }
  Request greedy(uint64_t seed, int64_t max_tokens = 40) const {
    return {.prompt = tokens(20, seed), .sampling = {.temperature = 0}, .max_tokens = max_tokens};
  }
  // With every way of drafting, all requests at once, each says what `plain` says alone.
  void expect_same_with_drafts(const std::vector<Request>& requests) const {
    std::vector<Output> plain;
    {
      CrowdRig rig(GetParam(), options());
      for (const Request& request : requests) plain.push_back(rig.run(request));
    }
    for (const DraftOptions& way : kWays) {
      CrowdRig rig(GetParam(), options(way));
      std::vector<TokenStream> streams;
      for (const Request& request : requests)
        streams.push_back(rig.engine->submit(request).value());
      for (size_t i = 0; i < requests.size(); ++i) {
        const Output output = read_all(streams[i]);
        EXPECT_EQ(output.tokens, plain[i].tokens) << i;
        EXPECT_EQ(output.logprobs, plain[i].logprobs) << i;
      }
    }
  }
};
INSTANTIATE_TEST_SUITE_P(Backends, NarrowedChoice, testing::ValuesIn(test::small_rig_cases()),
                         test::kRigName);

TEST_P(NarrowedChoice, ToSomeIds) {
  CrowdRig rig(GetParam(), options());
  Request request = greedy(3);
  request.sampling = {.temperature = 2, .seed = 4};
  request.allowed_ids = {7, 70, 170, 31, 32};
  const std::set<int32_t> allowed(request.allowed_ids.begin(), request.allowed_ids.end());
  const Output narrowed = rig.run(request);
  ASSERT_EQ(narrowed.tokens.size(), 40u);
  const std::set<int32_t> said(narrowed.tokens.begin(), narrowed.tokens.end());
  for (const int32_t token : said) EXPECT_TRUE(allowed.contains(token)) << token;
  EXPECT_GT(said.size(), 2u) << "the model still chooses among them";
  // Log-probabilities are the model's own, not those of what was left.
  EXPECT_LT(narrowed.logprobs[0], -0.5F);
  // Nothing of it stays behind in the rows of the next request.
  CrowdRig fresh(GetParam(), options());
  EXPECT_EQ(rig.run(greedy(3)).tokens, fresh.run(greedy(3)).tokens);
}

TEST_P(NarrowedChoice, ReasoningIsClosedAllTheSame) {
  CrowdRig rig(GetParam(), options());
  Request request = greedy(3, 8);
  request.allowed_ids = {7, 70};
  request.reasoning = {.budget = 3, .end_token = 99, .closing = {98, 99}};
  const std::vector<int32_t> said = rig.run(request).tokens;
  ASSERT_EQ(said.size(), 8u);
  EXPECT_EQ(said[3], 98);
  EXPECT_EQ(said[4], 99);
  for (const size_t i : {0u, 1u, 2u, 5u, 6u, 7u})
    EXPECT_TRUE(said[i] == 7 || said[i] == 70) << said[i];
}

TEST_P(NarrowedChoice, ByIdsThatMayNotFollowOthers) {
  CrowdRig rig(GetParam(), options());
  const std::vector<int32_t> free = rig.run(greedy(5)).tokens;
  // A single id never comes.
  Request without_one = greedy(5);
  without_one.banned = {{free[0]}};
  const std::vector<int32_t> one = rig.run(without_one).tokens;
  EXPECT_EQ(std::ranges::count(one, free[0]), 0);
  // Of a list the last does not come behind the others, and nothing before it changes.
  Request without_three = greedy(5);
  without_three.banned = {{free[4], free[5], free[6]}};
  const std::vector<int32_t> three = rig.run(without_three).tokens;
  EXPECT_TRUE(std::equal(free.begin(), free.begin() + 6, three.begin()));
  EXPECT_NE(three[6], free[6]);
  EXPECT_TRUE(std::ranges::search(three, without_three.banned[0]).empty());
  // The prompt does not count: what stands there has been said.
  Request across = greedy(5);
  across.banned = {{across.prompt.back(), free[0]}};
  EXPECT_EQ(rig.run(across).tokens, free);
}

TEST_P(NarrowedChoice, IsTheSameWithDrafts) {
  std::vector<Request> requests;
  for (uint64_t i = 0; i < 8; ++i) {
    Request request = greedy(10 + i);
    if (i % 2 == 1) request.sampling = {.temperature = 1.5F, .presence_penalty = 1, .seed = i};
    if (i % 4 < 2) request.allowed_ids = tokens(12, 50 + i);
    const std::vector<int32_t> some = tokens(40, 70 + i);
    for (size_t k = 0; i != 2 && k + 2 < some.size(); k += 2)
      request.banned.push_back({some[k], some[k + 1]});
    if (i % 4 == 3 || !request.allowed_ids.empty())
      request.banned.push_back({request.allowed_ids.empty() ? some[0] : request.allowed_ids[0]});
    requests.push_back(std::move(request));
  }
  expect_same_with_drafts(requests);
}

TEST_P(NarrowedChoice, ToNothingIsTheRequestsFault) {
  CrowdRig rig(GetParam(), options());
  Request request = greedy(3);
  request.allowed_ids = {7};
  request.banned = {{7}};
  const Output output = rig.run(request);
  EXPECT_EQ(output.completion.reason, FinishReason::kError);
  EXPECT_EQ(output.completion.error.code, ErrorCode::kInvalidArgument);
  EXPECT_THAT(output.completion.error.message, HasSubstr("allowed_token_ids"));
  EXPECT_EQ(rig.run(greedy(3)).tokens.size(), 40u);
}

TEST_P(NarrowedChoice, NamesIdsThatAreNone) {
  CrowdRig rig(GetParam(), options());
  Request allowed = greedy(1), banned = greedy(1), empty = greedy(1), scores = greedy(1);
  allowed.allowed_ids = {1, static_cast<int32_t>(GetParam().config.vocab_size)};
  banned.banned = {{1, -1}};
  empty.banned = {{}};
  scores.prompt_logprobs = 21;
  for (const auto& [request, word] : {std::pair(&allowed, "allowed_token_ids"),
                                      {&banned, "bad_words"},
                                      {&empty, "bad_words"},
                                      {&scores, "prompt_logprobs"}}) {
    const auto refused = rig.engine->submit(*request);
    ASSERT_FALSE(refused);
    EXPECT_THAT(refused.error().message, HasSubstr(word));
  }
}

// Over several chunks, with more rows than logits are kept of, and with drafters that read along.
TEST_P(NarrowedChoice, PromptsAreScored) {
  for (const DraftOptions& way : kWays) {
    CrowdRig rig(GetParam(), options(way));
    Request request = greedy(21, 4);
    request.prompt = tokens(150, 21);
    const std::vector<int32_t> without = rig.run(request).tokens;
    request.prompt_logprobs = 3;
    TokenStream stream = rig.engine->submit(request).value();
    StreamNews news;
    std::vector<int32_t> said;
    std::shared_ptr<const PromptScores> scores;
    do {
      stream.wait(news);
      for (const StreamToken& token : news.tokens) {
        EXPECT_NE(news.prompt_scores, nullptr) << "they come before the first token";
        said.push_back(token.token);
      }
      scores = news.prompt_scores;
    } while (!news.end);
    EXPECT_EQ(said, without) << "scoring changes nothing";
    ASSERT_NE(scores, nullptr);
    ASSERT_EQ(scores->tokens.size(), 149u);
    ASSERT_EQ(scores->top.size(), 149u * 3);
    // Each against what a request of the prompt so far says of that token.
    for (const size_t at : {0u, 1u, 62u, 63u, 64u, 100u, 127u, 148u}) {
      Request prefix = greedy(1, 1);
      prefix.prompt.assign(request.prompt.begin(),
                           request.prompt.begin() + static_cast<int64_t>(at) + 1);
      prefix.allowed_ids = {request.prompt[at + 1]};
      prefix.top_logprobs = kTopLogprobs;
      TokenStream one = rig.engine->submit(prefix).value();
      std::vector<TopLogprob> top;
      float logprob = 0;
      do {
        one.wait(news);
        if (!news.tokens.empty()) logprob = news.tokens[0].logprob;
        if (!news.top_logprobs.empty()) top = news.top_logprobs;
      } while (!news.end);
      const float near = GetParam().is_exact() ? 1e-4F : 0.05F;
      EXPECT_NEAR(scores->tokens[at].logprob, logprob, near) << at;
      EXPECT_NEAR(scores->top[at * 3].second, top[0].second, near) << at;
      if (!GetParam().is_exact()) continue;
      const auto place = std::ranges::find(top, request.prompt[at + 1], &TopLogprob::first);
      EXPECT_EQ(scores->tokens[at].rank,
                place == top.end() ? 0 : static_cast<int32_t>(place - top.begin()) + 1);
      EXPECT_EQ(scores->top[at * 3].first, top[0].first) << at;
    }
  }
}

}  // namespace
}  // namespace pewter
