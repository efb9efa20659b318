// The sample op on the host. Most cases give the logits as logarithms of small weights, so that
// expected probabilities are fractions one can check by hand.

#include "backend/cpu/sampling.h"

#include <gmock/gmock.h>

#include <array>
#include <cmath>
#include <numeric>

namespace pewter {
namespace {

using testing::Each;
using testing::ElementsAre;

constexpr float kBanned = -INFINITY;

// One row of a call and its edits.
struct Row {
  std::vector<float> logits;
  SamplingRow params;
  std::vector<LogitEdit> edits;
};

struct Answer {
  int32_t token = 0;
  float logprob = 0;
  std::array<int32_t, kTopLogprobs> top_token{};
  std::array<float, kTopLogprobs> top_logprob{};
};

struct Bounds {
  int64_t vocab_limit = INT32_MAX;
  std::vector<uint32_t> masks;  // empty: none
};

// All rows in one call of the op.
std::vector<Answer> sample(const std::vector<Row>& rows, const Bounds& bounds = {}) {
  const auto count = static_cast<int64_t>(rows.size()),
             vocab = static_cast<int64_t>(rows.front().logits.size());
  std::vector<float> logits;
  std::vector<SamplingRow> params;
  std::vector<LogitEdit> edits;
  std::vector<int32_t> edit_begin = {0};
  for (const Row& row : rows) {
    logits.insert(logits.end(), row.logits.begin(), row.logits.end());
    params.push_back(row.params);
    edits.insert(edits.end(), row.edits.begin(), row.edits.end());
    edit_begin.push_back(static_cast<int32_t>(edits.size()));
  }
  const std::vector<float> untouched = logits;
  std::vector<int32_t> token(rows.size(), 77), top_token(rows.size() * kTopLogprobs, 77);
  std::vector<float> logprob(rows.size(), 77), top_logprob(rows.size() * kTopLogprobs, 77);
  HostSampler sampler;
  sampler.reserve(vocab);
  sampler.sample({.logits = {logits.data(), DType::kF32, {count, vocab}},
                  .vocab_limit = bounds.vocab_limit,
                  .rows = params.data(),
                  .edits = edits.data(),
                  .edit_begin = edit_begin.data(),
                  .masks = bounds.masks.empty() ? nullptr : bounds.masks.data(),
                  .token = {token.data(), DType::kI32, {count}},
                  .logprob = {logprob.data(), DType::kF32, {count}},
                  .top_token = {top_token.data(), DType::kI32, {count, kTopLogprobs}},
                  .top_logprob = {top_logprob.data(), DType::kF32, {count, kTopLogprobs}}});
  EXPECT_EQ(std::memcmp(logits.data(), untouched.data(), logits.size() * sizeof(float)), 0);
  std::vector<Answer> answers(rows.size());
  for (size_t i = 0; i < rows.size(); ++i) {
    answers[i].token = token[i];
    answers[i].logprob = logprob[i];
    std::copy_n(top_token.begin() + static_cast<int64_t>(i) * kTopLogprobs, kTopLogprobs,
                answers[i].top_token.begin());
    std::copy_n(top_logprob.begin() + static_cast<int64_t>(i) * kTopLogprobs, kTopLogprobs,
                answers[i].top_logprob.begin());
  }
  return answers;
}

std::vector<float> logs(std::initializer_list<double> weights) {
  std::vector<float> logits;
  for (const double weight : weights) logits.push_back(static_cast<float>(std::log(weight)));
  return logits;
}

// Weights 8 4 4 2 1 1 of 20, in no order: ids 2 0 4 5 1 3 by falling weight.
std::vector<float> six() { return logs({4, 1, 8, 1, 4, 2}); }
// What the draws below are compared with, in the same order as six().
using Weights = std::vector<double>;

int32_t greedy(std::vector<float> logits, std::vector<LogitEdit> edits = {},
               SamplingRow params = {}, const Bounds& bounds = {}) {
  params.temperature = 0;
  return sample({{std::move(logits), params, std::move(edits)}}, bounds).front().token;
}

// Draws many output indexes and holds their counts against the weights with a chi-square test. The
// draws are a pure function of the seed, so this never flickers: the bound is the value that right
// code exceeds once in a million seeds with five degrees of freedom, 35.9.
void expect_distribution(const Row& row, const Weights& weights, uint32_t mask = 0xFFFFFFFFu) {
  constexpr int kDraws = 8000;
  const Bounds bounds{.masks = std::vector<uint32_t>(kDraws, mask)};
  std::vector<Row> rows(kDraws, row);
  for (size_t i = 0; i < rows.size(); ++i) rows[i].params.index = i;
  std::vector<int> counts(row.logits.size());
  for (const Answer& answer : sample(rows, bounds)) {
    ASSERT_GE(answer.token, 0);
    ++counts[static_cast<size_t>(answer.token)];
  }
  const double total = std::accumulate(weights.begin(), weights.end(), 0.0);
  double chi_square = 0;
  for (size_t i = 0; i < weights.size(); ++i) {
    const double expected = weights[i] / total * kDraws;
    if (expected == 0)
      ASSERT_EQ(counts[i], 0) << "token " << i;
    else
      chi_square += (counts[i] - expected) * (counts[i] - expected) / expected;
  }
  EXPECT_LT(chi_square, 35.9) << testing::PrintToString(counts);
}

TEST(Greedy, TakesTheLargestAndTheLowerIdOfEquals) {
  EXPECT_EQ(greedy({1, 3, 2}), 1);
  EXPECT_EQ(greedy({-3, -1, -1, -2, -1}), 1);
  EXPECT_EQ(greedy({0, -0.0f, 0}), 0);
  EXPECT_EQ(greedy({-1e30f, 1e30f}), 1);
  EXPECT_EQ(greedy({5}), 0);
}

TEST(Greedy, IgnoresTruncationAndKeepsPenalties) {
  const SamplingRow truncated{.top_p = 0.01f, .min_p = 1, .top_k = 1};
  EXPECT_EQ(greedy({1, 3, 2}, {}, truncated), 1);
  const SamplingRow penalised{.presence_penalty = 1.5f};
  EXPECT_EQ(greedy({1, 3, 2}, {{.token = 1, .output_count = 1}}, penalised), 2);
}

TEST(Greedy, TinyTemperatureIsTheLimit) {
  EXPECT_EQ(sample({{{1, 3, 2}, {.temperature = 1e-30f, .seed = 5}, {}}}).front().token, 1);
}

// Each pair of logits straddles the value the penalty gives, worked out by hand.
TEST(Penalties, RepetitionDividesPositiveAndMultipliesNegative) {
  const std::vector<LogitEdit> seen = {{.token = 0, .seen = true}};
  const SamplingRow params{.repetition_penalty = 2};
  EXPECT_EQ(greedy({3, 1.4f}, seen, params), 0);  // 3 / 2 = 1.5
  EXPECT_EQ(greedy({3, 1.6f}, seen, params), 1);
  EXPECT_EQ(greedy({-1, -2.1f}, seen, params), 0);  // -1 · 2 = -2
  EXPECT_EQ(greedy({-1, -1.9f}, seen, params), 1);
  EXPECT_EQ(greedy({0, -0.1f}, seen, params), 0);
  const SamplingRow reward{.repetition_penalty = 0.5f};
  EXPECT_EQ(greedy({1, 1.9f}, seen, reward), 0);                               // 1 / 0.5 = 2
  EXPECT_EQ(greedy({3, 2.9f}, {{.token = 0, .output_count = 4}}, params), 0);  // not seen: as it is
}

TEST(Penalties, PresenceAndFrequencyCountTheOutput) {
  const SamplingRow presence{.presence_penalty = 1}, frequency{.frequency_penalty = 0.5f},
      both{.presence_penalty = 1, .frequency_penalty = 0.5f};
  const std::vector<LogitEdit> thrice = {{.token = 0, .output_count = 3, .seen = true}};
  const std::vector<LogitEdit> prompt_only = {{.token = 0, .seen = true}};
  EXPECT_EQ(greedy({3, 1.9f}, thrice, presence), 0);  // 3 - 1 = 2
  EXPECT_EQ(greedy({3, 2.1f}, thrice, presence), 1);
  EXPECT_EQ(greedy({3, 1.4f}, thrice, frequency), 0);  // 3 - 1.5 = 1.5
  EXPECT_EQ(greedy({3, 1.6f}, thrice, frequency), 1);
  EXPECT_EQ(greedy({3, 0.4f}, thrice, both), 0);  // 3 - 1 - 1.5 = 0.5
  EXPECT_EQ(greedy({3, 0.6f}, thrice, both), 1);
  EXPECT_EQ(greedy({3, 2.9f}, prompt_only, both), 0);
  const SamplingRow reward{.presence_penalty = -1};
  EXPECT_EQ(greedy({3, 3.9f}, thrice, reward), 0);
}

TEST(Penalties, ComeAfterTheBias) {
  const SamplingRow params{.repetition_penalty = 2, .presence_penalty = 1};
  const std::vector<LogitEdit> edits = {{.token = 1, .output_count = 1, .bias = 4, .seen = true}};
  EXPECT_EQ(greedy({1.9f, 2}, edits, params), 1);  // (2 + 4) / 2 - 1 = 2
  EXPECT_EQ(greedy({2.1f, 2}, edits, params), 0);
}

TEST(Bias, MovesBansAndForces) {
  EXPECT_EQ(greedy({1, 3, 2}, {{.token = 0, .bias = 2.1f}}), 0);
  EXPECT_EQ(greedy({1, 3, 2}, {{.token = 0, .bias = 100}}), 0);
  EXPECT_EQ(greedy({1, 3, 2}, {{.token = 1, .bias = kBanned}}), 2);
  EXPECT_EQ(greedy({1, 3, 2}, {{.token = 0, .bias = kBanned}, {.token = 1, .bias = kBanned}}), 2);
  // A ban outlives penalties that would reward, and edits outside the vocabulary are nobody's.
  EXPECT_EQ(greedy({1, 3}, {{.token = 1, .output_count = 1, .bias = kBanned, .seen = true}},
                   {.repetition_penalty = 0.5f, .presence_penalty = -2}),
            0);
  EXPECT_EQ(greedy({1, 3}, {{.token = 1 << 28, .bias = 100}, {.token = -1, .bias = 100}}), 1);
}

TEST(Bounds, MasksAndLimits) {
  std::vector<float> logits(40);
  std::iota(logits.begin(), logits.end(), 0.0f);
  EXPECT_EQ(greedy(logits), 39);
  EXPECT_EQ(greedy(logits, {}, {}, {.vocab_limit = 35}), 34);
  EXPECT_EQ(greedy(logits, {}, {}, {.masks = {0xFFFFFFFFu, 0x2u}}), 33);
  EXPECT_EQ(greedy(logits, {}, {}, {.masks = {0x80000001u, 0}}), 31);
  EXPECT_EQ(greedy(logits, {}, {}, {.vocab_limit = 31, .masks = {0x80000001u, 0}}), 0);
  EXPECT_EQ(greedy(logits, {{.token = 31, .bias = kBanned}}, {}, {.masks = {0x80000001u, 0}}), 0);
  EXPECT_EQ(greedy(logits, {{.token = 2, .bias = 100}}, {}, {.masks = {0x80000001u, 0}}), 31);

  // Every row has its own mask.
  const std::vector<Answer> rows =
      sample({{logits, {}, {}}, {logits, {}, {}}}, {.masks = {0x10u, 0, 0, 0x4u}});
  EXPECT_EQ(rows[0].token, 4);
  EXPECT_EQ(rows[1].token, 34);
}

TEST(Bounds, NothingLeftIsMinusOne) {
  for (const float temperature : {0.0f, 1.0f}) {
    const SamplingRow params{.temperature = temperature, .top_p = 0.5f, .min_p = 0.1f, .top_k = 2};
    const std::vector<LogitEdit> bans = {{.token = 0, .bias = kBanned},
                                         {.token = 1, .bias = kBanned}};
    for (const Answer& answer : {sample({{{1, 2}, params, {}}}, {.masks = {0}})[0],
                                 sample({{{1, 2}, params, {}}}, {.vocab_limit = 0})[0],
                                 sample({{{1, 2}, params, bans}})[0],
                                 sample({{{1, 2}, params, {bans[0]}}}, {.masks = {1}})[0]}) {
      EXPECT_EQ(answer.token, -1);
      EXPECT_TRUE(std::isnan(answer.logprob));
      EXPECT_EQ(answer.top_token[0], 1);  // the model's distribution is still what it is
    }
  }
}

TEST(Bounds, NonFiniteLogitsAreMinusOneInTheirRowOnly) {
  for (const float bad : {NAN, INFINITY, -INFINITY})
    for (const float temperature : {0.0f, 1.0f}) {
      const SamplingRow params{.temperature = temperature};
      const std::vector<Answer> rows =
          sample({{{1, 30, 2}, params, {}}, {{1, bad, 2}, params, {}}, {{1, 2, 30}, params, {}}});
      EXPECT_EQ(rows[0].token, 1);
      EXPECT_EQ(rows[1].token, -1);
      EXPECT_TRUE(std::isnan(rows[1].logprob));
      EXPECT_THAT(rows[1].top_token, Each(-1));
      EXPECT_THAT(rows[1].top_logprob, Each(-INFINITY));
      EXPECT_EQ(rows[2].token, 2);
    }
}

TEST(Logprobs, AreThoseOfTheUnmodifiedLogits) {
  const std::vector<LogitEdit> edits = {{.token = 2, .bias = kBanned},
                                        {.token = 5, .output_count = 2, .bias = 9, .seen = true}};
  const Answer answer =
      sample({{six(), {.temperature = 0.3f, .top_k = 2, .repetition_penalty = 1.5f}, edits}},
             {.masks = {0x20u}})
          .front();
  EXPECT_EQ(answer.token, 5);
  EXPECT_NEAR(answer.logprob, std::log(2.0 / 20), 1e-6);
  const double weights[] = {8, 4, 4, 2, 1, 1};
  const int32_t order[] = {2, 0, 4, 5, 1, 3};  // equals by rising id
  for (size_t i = 0; i < kTopLogprobs; ++i) {
    if (i < 6) {
      EXPECT_EQ(answer.top_token[i], order[i]);
      EXPECT_NEAR(answer.top_logprob[i], std::log(weights[i] / 20), 1e-6);
    } else {  // past the vocabulary
      EXPECT_EQ(answer.top_token[i], -1);
      EXPECT_EQ(answer.top_logprob[i], -INFINITY);
    }
  }
}

TEST(Logprobs, TopTwentyOfMany) {
  std::vector<float> logits(1000);
  for (size_t i = 0; i < logits.size(); ++i) logits[i] = static_cast<float>((i * 7919) % 1000) / 10;
  for (const size_t i : {size_t{3}, size_t{500}, size_t{999}}) logits[i] = 200;  // three equals
  const Answer answer = sample({{logits, {}, {}}}).front();
  std::vector<int32_t> ids(logits.size());
  std::iota(ids.begin(), ids.end(), 0);
  std::stable_sort(ids.begin(), ids.end(), [&](int32_t a, int32_t b) {
    return logits[static_cast<size_t>(a)] > logits[static_cast<size_t>(b)];
  });
  ids.resize(kTopLogprobs);
  EXPECT_EQ(std::vector<int32_t>(answer.top_token.begin(), answer.top_token.end()), ids);
  EXPECT_EQ(answer.token, 3);
  EXPECT_NEAR(answer.logprob, -std::log(3.0), 1e-6);
}

// Large logits must not overflow on the way.
TEST(Logprobs, HoldForLargeLogits) {
  const Answer answer = sample({{{1000, 1000, -1000}, {}, {}}}).front();
  EXPECT_NEAR(answer.logprob, -std::log(2.0), 1e-4);
  EXPECT_NEAR(answer.top_logprob[2], -2000, 1);
}

TEST(Draws, ArePureInSeedAndIndex) {
  std::vector<Row> rows;
  for (uint64_t i = 0; i < 60; ++i)
    rows.push_back({six(),
                    {.temperature = 1.5f, .top_p = 0.95f, .seed = i % 3, .index = i / 3},
                    {{.token = static_cast<int32_t>(i % 6), .bias = 0.5f}}});
  const std::vector<Answer> together = sample(rows);
  for (size_t i = 0; i < rows.size(); ++i)
    EXPECT_EQ(sample({rows[i]}).front().token, together[i].token) << "row " << i;
  std::reverse(rows.begin(), rows.end());
  const std::vector<Answer> reversed = sample(rows);
  for (size_t i = 0; i < rows.size(); ++i)
    EXPECT_EQ(reversed[rows.size() - 1 - i].token, together[i].token) << "row " << i;
}

TEST(Draws, DifferBySeedAsByIndex) {
  std::vector<int> counts(6);
  std::vector<Row> rows(3000, Row{six(), {.temperature = 1}, {}});
  for (size_t i = 0; i < rows.size(); ++i) rows[i].params.seed = i;
  for (const Answer& answer : sample(rows)) ++counts[static_cast<size_t>(answer.token)];
  EXPECT_NEAR(counts[2], 1200, 150);  // 8 of 20; the deviation is 27
  EXPECT_NEAR(counts[5], 300, 90);
}

TEST(Distribution, Temperature) {
  expect_distribution({six(), {.temperature = 1, .seed = 1}, {}}, {4, 1, 8, 1, 4, 2});
  expect_distribution({six(), {.temperature = 0.5f, .seed = 2}, {}}, {16, 1, 64, 1, 16, 4});
  const double r = std::sqrt(2.0);
  expect_distribution({six(), {.temperature = 2, .seed = 3}, {}}, {2, 1, 2 * r, 1, 2, r});
}

TEST(Distribution, TopK) {
  expect_distribution({six(), {.temperature = 1, .top_k = 3, .seed = 4}, {}}, {4, 0, 8, 0, 4, 0});
  // Of the equal weights the lower id stays.
  expect_distribution({six(), {.temperature = 1, .top_k = 2, .seed = 5}, {}}, {4, 0, 8, 0, 0, 0});
  expect_distribution({six(), {.temperature = 1, .top_k = 5, .seed = 6}, {}}, {4, 1, 8, 0, 4, 2});
  expect_distribution({six(), {.temperature = 1, .top_k = 1, .seed = 7}, {}}, {0, 0, 1, 0, 0, 0});
  expect_distribution({six(), {.temperature = 1, .top_k = 9, .seed = 8}, {}}, {4, 1, 8, 1, 4, 2});
}

TEST(Distribution, TopPIsTheSmallestSetThatReachesIt) {
  const auto top_p = [](float p) { return SamplingRow{.temperature = 1, .top_p = p, .seed = 9}; };
  expect_distribution({six(), top_p(0.41f), {}}, {4, 0, 8, 0, 0, 0});  // 8 of 20 are not enough
  expect_distribution({six(), top_p(0.39f), {}}, {0, 0, 1, 0, 0, 0});
  expect_distribution({six(), top_p(0.59f), {}}, {4, 0, 8, 0, 0, 0});
  expect_distribution({six(), top_p(0.61f), {}}, {4, 0, 8, 0, 4, 0});
  expect_distribution({six(), top_p(0.89f), {}}, {4, 0, 8, 0, 4, 2});
  expect_distribution({six(), top_p(0.96f), {}}, {4, 1, 8, 1, 4, 2});
  expect_distribution({six(), top_p(1e-9f), {}}, {0, 0, 1, 0, 0, 0});  // at least one
  // Reached exactly: half of two equals.
  expect_distribution({{1, 1}, top_p(0.5f), {}}, {1, 0});
}

TEST(Distribution, MinPIsRelativeToTheMostProbable) {
  const auto min_p = [](float p) { return SamplingRow{.temperature = 1, .min_p = p, .seed = 10}; };
  expect_distribution({six(), min_p(0.2f), {}}, {4, 0, 8, 0, 4, 2});   // 1.6 of 8
  expect_distribution({six(), min_p(0.26f), {}}, {4, 0, 8, 0, 4, 0});  // 2.08 of 8
  expect_distribution({six(), min_p(0.1f), {}}, {4, 1, 8, 1, 4, 2});
  expect_distribution({six(), min_p(1), {}}, {0, 0, 1, 0, 0, 0});
  expect_distribution({{2, 2, 1}, min_p(1), {}}, {1, 1, 0});
}

// Each case has another answer when two of its steps change places.
TEST(Distribution, OrderOfTheSteps) {
  // Temperature first: 64 16 16 4 1 1 of 102.
  expect_distribution({six(), {.temperature = 0.5f, .min_p = 0.2f, .seed = 11}, {}},
                      {16, 0, 64, 0, 16, 0});
  expect_distribution({six(), {.temperature = 0.5f, .top_p = 0.75f, .seed = 12}, {}},
                      {16, 0, 64, 0, 0, 0});
  // top-p counts the mass that min-p left (16 of 18 reach 0.88), and top-k (12 of 16 reach 0.7).
  expect_distribution({six(), {.temperature = 1, .top_p = 0.88f, .min_p = 0.2f, .seed = 13}, {}},
                      {4, 0, 8, 0, 4, 0});
  expect_distribution({six(), {.temperature = 1, .top_p = 0.7f, .top_k = 3, .seed = 14}, {}},
                      {4, 0, 8, 0, 0, 0});
  // A ban or a mask before top-k: the next ones move up. min-p is relative to what is left.
  expect_distribution({six(), {.temperature = 1, .top_k = 2, .seed = 15}, {{2, 0, kBanned}}},
                      {4, 0, 0, 0, 4, 0});
  expect_distribution({six(), {.temperature = 1, .min_p = 0.4f, .seed = 16}, {}},
                      {4, 0, 0, 0, 4, 2}, 0x3B);
}

TEST(Distribution, PenaltiesAndBias) {
  const float ln2 = std::log(2.0f);
  // Presence 2·ln 2 quarters the weight of a token in the output, frequency ln 2 halves it each
  // time.
  const std::vector<LogitEdit> edits = {{.token = 2, .output_count = 2, .seen = true},
                                        {.token = 0, .output_count = 1, .seen = true},
                                        {.token = 4, .seen = true}};
  expect_distribution({six(), {.temperature = 1, .presence_penalty = 2 * ln2, .seed = 17}, edits},
                      {1, 1, 2, 1, 4, 2});
  expect_distribution({six(), {.temperature = 1, .frequency_penalty = ln2, .seed = 18}, edits},
                      {2, 1, 2, 1, 4, 2});
  // Repetition 2: 8 → √8, 4 → 2. Below one: 1/2 → 1/4.
  expect_distribution(
      {logs({4, 1, 8, 1, 0.5, 2}), {.temperature = 1, .repetition_penalty = 2, .seed = 19}, edits},
      {2, 1, std::sqrt(8.0), 1, 0.25, 2});
  // The bias comes before the penalty: (ln 2 + ln 8) / 2 = ln 4.
  expect_distribution({six(),
                       {.temperature = 1, .repetition_penalty = 2, .seed = 20},
                       {{.token = 5, .bias = 3 * ln2, .seen = true}}},
                      {4, 1, 8, 1, 4, 4});
  // Penalties before temperature and truncation: 8 → 2, squared, of the largest three.
  expect_distribution({six(),
                       {.temperature = 0.5f, .top_k = 3, .presence_penalty = 2 * ln2, .seed = 21},
                       {{.token = 2, .output_count = 1}}},
                      {16, 0, 4, 0, 16, 0});
}

}  // namespace
}  // namespace pewter
