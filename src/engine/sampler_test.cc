#include "engine/sampler.h"

#include <gmock/gmock.h>

#include <cmath>
#include <limits>

namespace pewter {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

// The edit of a token, or a neutral one.
LogitEdit edit(const Sampler& sampler, int32_t token) {
  LogitEdit found{.token = token};
  int times = 0;
  for (const LogitEdit& e : sampler.edits())
    if (e.token == token) {
      found = e;
      ++times;
    }
  EXPECT_LE(times, 1) << "token " << token << " has several edits";
  return found;
}

Request request(SamplingParams params) {
  return {.prompt = {5, 6, 5}, .sampling = std::move(params), .max_tokens = 8};
}

TEST(Sampler, NeutralParametersEditNothing) {
  Sampler sampler(request({}), {.seed = 3, .max_tokens = 8});
  EXPECT_TRUE(sampler.edits().empty());
  for (const int32_t token : {5, 9, 9}) sampler.push(token);
  EXPECT_TRUE(sampler.edits().empty());
  EXPECT_EQ(sampler.generated(), 3);
  EXPECT_EQ(sampler.row().index, 3u);
  EXPECT_EQ(sampler.row().seed, 3u);
  EXPECT_EQ(sampler.row().top_k, 0);
}

TEST(Sampler, PassesParametersOn) {
  const Sampler sampler(request({.temperature = 0.5f,
                                 .top_k = 7,
                                 .top_p = 0.75f,
                                 .min_p = 0.25f,
                                 .repetition_penalty = 1.5f,
                                 .presence_penalty = 0.5f,
                                 .frequency_penalty = -0.5f,
                                 .seed = 11}),
                        {.seed = 3, .max_tokens = 8});
  const SamplingRow row = sampler.row();
  EXPECT_EQ(row.temperature, 0.5f);
  EXPECT_EQ(row.top_k, 7);
  EXPECT_EQ(row.top_p, 0.75f);
  EXPECT_EQ(row.min_p, 0.25f);
  EXPECT_EQ(row.repetition_penalty, 1.5f);
  EXPECT_EQ(row.presence_penalty, 0.5f);
  EXPECT_EQ(row.frequency_penalty, -0.5f);
  EXPECT_EQ(row.seed, 11u);  // the request's own
  EXPECT_EQ(row.index, 0u);
  EXPECT_EQ(Sampler(request({.top_k = -1}), {}).row().top_k, 0);  // -1 is off as well
}

TEST(Sampler, BansTheLastOfAListBehindTheOthers) {
  Request banned = request({.logit_bias = {{8, 2.0f}}});
  banned.banned = {{4}, {7, 8}, {7, 7, 9}};
  Sampler sampler(banned, {.max_tokens = 8});
  const auto is_banned = [&](int32_t token) { return edit(sampler, token).bias == -INFINITY; };
  EXPECT_TRUE(is_banned(4));
  EXPECT_FALSE(is_banned(8));
  EXPECT_EQ(edit(sampler, 8).bias, 2.0f);
  const int64_t most = sampler.most_edits();
  sampler.push(7);
  EXPECT_TRUE(is_banned(8));  // above its own bias
  EXPECT_FALSE(is_banned(9));
  sampler.push(7);
  EXPECT_TRUE(is_banned(8));
  EXPECT_TRUE(is_banned(9));
  sampler.push(3);
  EXPECT_TRUE(is_banned(4));
  EXPECT_EQ(edit(sampler, 8).bias, 2.0f);
  EXPECT_FALSE(is_banned(9));
  EXPECT_EQ(sampler.most_edits(), most) << "room for every ban is made at once";
}

TEST(Sampler, RepetitionSeesPromptAndOutput) {
  Sampler sampler(request({.repetition_penalty = 1.2f}), {.max_tokens = 8});
  EXPECT_TRUE(edit(sampler, 5).seen);
  EXPECT_TRUE(edit(sampler, 6).seen);
  EXPECT_FALSE(edit(sampler, 7).seen);
  EXPECT_EQ(edit(sampler, 5).output_count, 0);
  sampler.push(7);
  EXPECT_TRUE(edit(sampler, 7).seen);
}

TEST(Sampler, PresenceAndFrequencySeeTheOutputOnly) {
  Sampler sampler(request({.presence_penalty = 1, .frequency_penalty = 1}), {.max_tokens = 8});
  EXPECT_TRUE(sampler.edits().empty());
  for (const int32_t token : {9, 5, 9, 2}) sampler.push(token);
  EXPECT_EQ(edit(sampler, 9).output_count, 2);
  EXPECT_EQ(edit(sampler, 5).output_count, 1);
  EXPECT_EQ(edit(sampler, 2).output_count, 1);
  EXPECT_EQ(edit(sampler, 6).output_count, 0);
  EXPECT_FALSE(edit(sampler, 5).seen);  // the repetition penalty is off
}

TEST(Sampler, BiasesAddUp) {
  const Sampler sampler(request({.logit_bias = {{4, 1.5f}, {2, -3.0f}, {4, 2.0f}}}), {});
  EXPECT_EQ(edit(sampler, 4).bias, 3.5f);
  EXPECT_EQ(edit(sampler, 2).bias, -3.0f);
}

TEST(Sampler, StopIdsWaitForMinTokens) {
  Request asked = request({.frequency_penalty = 1, .logit_bias = {{1, 7.0f}, {3, 2.0f}}});
  asked.stop_ids = {1, 2, 1};
  asked.min_tokens = 2;
  Sampler sampler(asked, {.max_tokens = 8});
  for (int i = 0; i < 2; ++i) {  // tokens 0 and 1 cannot be a stop
    EXPECT_EQ(edit(sampler, 1).bias, -INFINITY);
    EXPECT_EQ(edit(sampler, 2).bias, -INFINITY);
    EXPECT_EQ(edit(sampler, 3).bias, 2.0f);
    sampler.push(9);
  }
  EXPECT_EQ(edit(sampler, 1).bias, 7.0f);  // its own bias comes back, once
  EXPECT_EQ(edit(sampler, 2).bias, 0.0f);
  EXPECT_EQ(edit(sampler, 3).bias, 2.0f);
  EXPECT_EQ(edit(sampler, 9).output_count, 2);
}

TEST(Sampler, IgnoredStopIdsNeverCome) {
  Request asked = request({.logit_bias = {{1, 7.0f}}});
  asked.stop_ids = {1, 2};
  asked.ignore_stop = true;
  asked.min_tokens = 1;
  Sampler sampler(asked, {.max_tokens = 8});
  for (int i = 0; i < 4; ++i) {
    EXPECT_EQ(edit(sampler, 1).bias, -INFINITY);
    EXPECT_EQ(edit(sampler, 2).bias, -INFINITY);
    sampler.push(9);
  }
}

TEST(Sampler, StopIdsAreOrdinaryWithoutMinTokens) {
  Request asked = request({.logit_bias = {{1, 7.0f}}});
  asked.stop_ids = {1, 2};
  const Sampler sampler(asked, {.max_tokens = 8});
  EXPECT_EQ(edit(sampler, 1).bias, 7.0f);
  EXPECT_EQ(edit(sampler, 2).bias, 0.0f);
}

TEST(Sampler, ClosesReasoningThatUsedUpItsBudget) {
  Request asked = request({.logit_bias = {{30, -100.0f}}});
  asked.reasoning = {.budget = 2, .end_token = 31, .closing = {30, 31, 30}};
  const auto forced = [](const Sampler& sampler) {
    int32_t token = -1;
    for (const LogitEdit& edit : sampler.edits())
      if (edit.bias > 1000) token = token < 0 ? edit.token : -2;
    return token;
  };
  Sampler sampler(asked, {.max_tokens = 9});
  std::vector<int32_t> seen;
  for (int i = 0; i < 7; ++i) {
    seen.push_back(forced(sampler));
    sampler.push(seen.back() < 0 ? 9 : seen.back());
  }
  EXPECT_THAT(seen, ElementsAre(-1, -1, 30, 31, 30, -1, -1));
  EXPECT_EQ(edit(sampler, 30).bias, -100.0f);  // its own again
  // The model may end it itself, but only within the budget.
  for (const auto& [at, first] : {std::pair(0, -1), {1, -1}, {2, 30}}) {
    Sampler own(asked, {.max_tokens = 9});
    for (int i = 0; i < 3; ++i) {
      if (i == 2) {
        EXPECT_EQ(forced(own), first) << at;
      }
      own.push(i == at ? 31 : 9);
    }
  }
  asked.reasoning.budget = 0;
  EXPECT_EQ(forced(Sampler(asked, {.max_tokens = 9})), 30);
  asked.reasoning.budget = -1;
  EXPECT_EQ(forced(Sampler(asked, {.max_tokens = 9})), -1);
}

// Every field, just inside and just outside of its range; messages name field, value and range.
TEST(SamplingParams, ValidateNamesTheField) {
  const auto message = [](const SamplingParams& params) {
    const Status status = params.validate(100);
    if (status) return std::string("valid");
    EXPECT_EQ(status.error().code, ErrorCode::kInvalidArgument);
    return status.error().message;
  };
  EXPECT_EQ(message({}), "valid");
  EXPECT_EQ(message({.temperature = 0}), "valid");
  EXPECT_EQ(message({.temperature = -0.1f}), "temperature: -0.1 is outside [0, 100]");
  EXPECT_THAT(message({.temperature = NAN}), HasSubstr("temperature: nan"));
  EXPECT_THAT(message({.temperature = INFINITY}), HasSubstr("temperature: inf"));
  EXPECT_EQ(message({.top_k = -1}), "valid");
  EXPECT_THAT(message({.top_k = -2}), HasSubstr("top_k: -2"));
  EXPECT_EQ(message({.top_p = 1e-6f}), "valid");
  EXPECT_THAT(message({.top_p = 0}), HasSubstr("top_p: 0"));
  EXPECT_THAT(message({.top_p = 1.1f}), HasSubstr("top_p: 1.1 is outside"));
  EXPECT_THAT(message({.top_p = NAN}), HasSubstr("top_p: nan"));
  EXPECT_EQ(message({.min_p = 1}), "valid");
  EXPECT_THAT(message({.min_p = -1}), HasSubstr("min_p: -1"));
  EXPECT_THAT(message({.min_p = 1.5f}), HasSubstr("min_p: 1.5"));
  EXPECT_THAT(message({.repetition_penalty = 0}), HasSubstr("repetition_penalty: 0"));
  EXPECT_THAT(message({.repetition_penalty = NAN}), HasSubstr("repetition_penalty: nan"));
  EXPECT_EQ(message({.presence_penalty = -2}), "valid");
  EXPECT_THAT(message({.presence_penalty = 2.5f}), HasSubstr("presence_penalty: 2.5"));
  EXPECT_THAT(message({.frequency_penalty = -2.5f}), HasSubstr("frequency_penalty: -2.5"));
  EXPECT_EQ(message({.logit_bias = {{99, 100.0f}}}), "valid");
  EXPECT_THAT(message({.logit_bias = {{100, 1.0f}}}), HasSubstr("logit_bias: token id 100"));
  EXPECT_THAT(message({.logit_bias = {{-1, 1.0f}}}), HasSubstr("logit_bias: token id -1"));
  EXPECT_THAT(message({.logit_bias = {{1, 101.0f}}}), HasSubstr("logit_bias: 101"));
  EXPECT_THAT(message({.logit_bias = {{1, NAN}}}), HasSubstr("logit_bias: nan"));
}

}  // namespace
}  // namespace pewter
