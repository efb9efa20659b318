// Engine: one request from prompt to completion, its ends, its errors, and two engines side by
// side.

#include "engine/engine.h"

#include <gmock/gmock.h>

#include <cmath>
#include <limits>
#include <thread>

#include "support/test_rig.h"

namespace pewter {
namespace {

using test::RigCase;
using test::TestRig;
using testing::HasSubstr;

// What came out of a request, bits included.
struct Output {
  std::vector<int32_t> tokens;
  std::vector<float> logprobs;
  bool operator==(const Output&) const = default;
};

struct EngineRig {
  Backend backend;
  Qwen35Model model;
  std::unique_ptr<Engine> engine;
  Completion completion;  // of the last generate()

  explicit EngineRig(const RigCase& rig_case,
                     EngineOptions options = {.runner = {.chunk_rows = 64, .cache_tokens = 512}}) {
    backend = make_rig_backend(rig_case);
    model =
        test::make_random_model(*backend.device, rig_case.config, rig_case.formats, rig_case.seed)
            .value();
    engine = Engine::make(model, *backend.device, *backend.ops, options).value();
  }

  Output generate(const Request& request) {
    Output output;
    const Engine::Hooks hooks{.on_token = [&](const TokenEvent& event) {
      output.tokens.push_back(event.token);
      output.logprobs.push_back(event.logprob);
      return true;
    }};
    completion = engine->generate(request, hooks).value();
    return output;
  }
  bool returned_everything() {
    const StatePool& pool = engine->runner().pool();
    return pool.kv.free_pages() == pool.kv.pages() &&
           pool.recurrent.free_slots() == pool.recurrent.slots();
  }
};

Request greedy(std::vector<int32_t> prompt, int64_t max_tokens) {
  return {.prompt = std::move(prompt), .sampling = {.temperature = 0}, .max_tokens = max_tokens};
}

class EngineTest : public test::RigTest {};
INSTANTIATE_TEST_SUITE_P(Backends, EngineTest, testing::ValuesIn(test::small_rig_cases()),
                         test::kRigName);

TEST_P(EngineTest, TwoRunsGiveTheSameBits) {
  EngineRig rig(GetParam());
  const Request request = greedy(tokens(70, 1), 24);
  const Output first = rig.generate(request);
  EXPECT_EQ(first.tokens.size(), 24u);
  EXPECT_EQ(rig.completion.reason, FinishReason::kLength);
  EXPECT_EQ(rig.completion.prompt_tokens, 70);
  EXPECT_EQ(rig.completion.completion_tokens, 24);
  rig.generate(greedy(tokens(129, 2), 5));  // other work between
  EXPECT_EQ(rig.generate(request), first);
  EXPECT_TRUE(rig.returned_everything());
}

TEST_P(EngineTest, GreedyIsTheLargestLogitOfARunner) {
  EngineRig rig(GetParam());
  const std::vector<int32_t> prompt = tokens(66, 3);
  const Output output = rig.generate(greedy(prompt, 8));
  const auto plain = TestRig::make(GetParam(), {.chunk_rows = 64, .cache_tokens = 512});
  SequenceState sequence = plain->open(80);
  std::vector<float> logits = plain->prefill(sequence, prompt);
  for (const int32_t token : output.tokens) {
    EXPECT_EQ(token, std::max_element(logits.begin(), logits.end()) - logits.begin());
    logits = plain->steps(sequence, std::span(&token, 1)).front();
  }
}

TEST_P(EngineTest, SeedsDecideTheDraws) {
  EngineRig rig(GetParam());
  Request request{.prompt = tokens(5, 4), .sampling = {.seed = 7}, .max_tokens = 30};
  const Output first = rig.generate(request);
  EXPECT_EQ(rig.completion.seed, 7u);
  EXPECT_EQ(rig.generate(request), first);
  request.sampling.seed = 8;
  EXPECT_NE(rig.generate(request).tokens, first.tokens);
  request.sampling.seed.reset();
  const Output drawn = rig.generate(request);
  request.sampling.seed = rig.completion.seed;  // reported back, so that it can be repeated
  EXPECT_EQ(rig.generate(request), drawn);
}

TEST_P(EngineTest, StopIdsEndTheSequence) {
  EngineRig rig(GetParam());
  Request request{.prompt = tokens(6, 5), .sampling = {.seed = 1}, .max_tokens = 40};
  const Output free_run = rig.generate(request);
  const int32_t stop = free_run.tokens[5];
  const auto first = std::find(free_run.tokens.begin(), free_run.tokens.end(), stop);
  request.stop_ids = {stop};
  std::vector<bool> stops;
  const Engine::Hooks hooks{.on_token = [&](const TokenEvent& event) {
    stops.push_back(event.is_stop);
    return true;
  }};
  const Completion completion = rig.engine->generate(request, hooks).value();
  EXPECT_EQ(completion.reason, FinishReason::kStop);
  EXPECT_EQ(completion.completion_tokens, first - free_run.tokens.begin() + 1);
  EXPECT_EQ(static_cast<int64_t>(stops.size()), completion.completion_tokens);
  EXPECT_EQ(std::count(stops.begin(), stops.end(), true), 1);
  EXPECT_TRUE(stops.back());

  request.min_tokens = 20;  // not before 20 tokens
  EXPECT_GT(rig.generate(request).tokens.size(), 20u);
  request.min_tokens = 0;
  request.ignore_stop = true;
  const Output ignored = rig.generate(request);
  EXPECT_EQ(ignored.tokens.size(), 40u);
  EXPECT_THAT(ignored.tokens, testing::Not(testing::Contains(stop)));
}

TEST_P(EngineTest, CallersCancelWithinAStep) {
  EngineRig rig(GetParam());
  const Request request = greedy(tokens(150, 6), 30);
  int64_t heard = 0, chunks = 0;
  const Completion decoding =
      rig.engine->generate(request, {.on_token = [&](const TokenEvent&) { return ++heard < 3; }})
          .value();
  EXPECT_EQ(decoding.reason, FinishReason::kCancelled);
  EXPECT_EQ(heard, 3);
  EXPECT_EQ(decoding.completion_tokens, 3);

  const auto count_chunks = [&](int64_t done, int64_t total) {
    ++chunks;
    EXPECT_EQ(total, 150);
    EXPECT_TRUE(done == 64 || done == 128 || done == total) << done;
    return done < 128;
  };
  const Completion prefilling =
      rig.engine
          ->generate(request, {.on_token = [&](const TokenEvent&) { return ++heard < 100; },
                               .on_prefill = count_chunks})
          .value();
  EXPECT_EQ(prefilling.reason, FinishReason::kCancelled);
  EXPECT_LE(chunks, 2);
  EXPECT_EQ(heard, 3);  // no token was chosen
  EXPECT_EQ(prefilling.completion_tokens, 0);
  EXPECT_TRUE(rig.returned_everything());
}

TEST_P(EngineTest, ContextLimitsTheLength) {
  EngineRig rig(GetParam(),
                {.runner = {.chunk_rows = 64, .cache_tokens = 512}, .max_context = 100});
  EXPECT_EQ(rig.engine->max_context(), 100);
  EXPECT_EQ(rig.generate(greedy(tokens(90, 7), 1000)).tokens.size(), 10u);
  EXPECT_EQ(rig.completion.reason, FinishReason::kLength);
  EXPECT_EQ(rig.generate(greedy(tokens(99, 7), std::numeric_limits<int64_t>::max())).tokens.size(),
            1u);
  const auto refused = rig.engine->generate(greedy(tokens(100, 7), 1),
                                            {.on_token = [](const TokenEvent&) { return true; }});
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, ErrorCode::kInvalidArgument);
  EXPECT_THAT(refused.error().message, HasSubstr("maximum context length is 100"));
  EXPECT_THAT(refused.error().message, HasSubstr("prompt of 100 tokens"));
}

// "The rest of the context" with penalties on must not cost memory in proportion to what was asked.
TEST_P(EngineTest, UnboundedMaxTokensWithPenalties) {
  EngineRig rig(GetParam());
  Request request = greedy(tokens(500, 8), std::numeric_limits<int64_t>::max());
  request.sampling.repetition_penalty = 1.3f;
  request.sampling.presence_penalty = 0.5f;
  EXPECT_EQ(rig.generate(request).tokens.size(), 12u);
}

TEST_P(EngineTest, InvalidRequestsNameTheField) {
  EngineRig rig(GetParam());
  const auto refused = [&](const Request& request, const char* field) {
    const auto result =
        rig.engine->generate(request, {.on_token = [](const TokenEvent&) { return true; }});
    ASSERT_FALSE(result) << field;
    EXPECT_EQ(result.error().code, ErrorCode::kInvalidArgument);
    EXPECT_THAT(result.error().message, HasSubstr(field));
  };
  refused(greedy({}, 1), "prompt: empty");
  refused(greedy({5, 320}, 1), "prompt: token id 320");
  refused(greedy({-1}, 1), "prompt: token id -1");
  refused(greedy({1}, 0), "max_tokens: 0");
  Request request = greedy({1}, 4);
  request.min_tokens = -1;
  refused(request, "min_tokens: -1");
  request.min_tokens = 5;
  refused(request, "min_tokens: 5");
  request.min_tokens = 0;
  request.sampling.top_p = 0;
  refused(request, "top_p");
  EXPECT_TRUE(rig.returned_everything());
}

TEST_P(EngineTest, MasksAndLimitsBoundTheChoice) {
  std::vector<uint32_t> mask(10);  // ids 33 and 300 of 320
  mask[1] = 1u << 1;
  mask[9] = 1u << 12;
  const RunnerOptions runner{.chunk_rows = 64, .cache_tokens = 512};
  const Request request{
      .prompt = tokens(5, 9), .sampling = {.temperature = 100, .seed = 3}, .max_tokens = 40};
  EngineRig both(GetParam(), {.runner = runner, .token_mask = mask});
  EXPECT_THAT(both.generate(request).tokens, testing::Each(testing::AnyOf(33, 300)));
  EXPECT_THAT(both.generate(request).tokens, testing::Contains(300));
  EngineRig limited(GetParam(), {.runner = runner, .token_mask = mask, .vocab_limit = 300});
  EXPECT_THAT(limited.generate(request).tokens, testing::Each(33));

  EngineRig none(GetParam(), {.runner = runner, .token_mask = mask, .vocab_limit = 33});
  EXPECT_TRUE(none.generate(request).tokens.empty());
  EXPECT_EQ(none.completion.reason, FinishReason::kError);

  const auto& backend = both.backend;
  const auto bad_size = Engine::make(both.model, *backend.device, *backend.ops,
                                     {.runner = runner, .token_mask = {1}});
  ASSERT_FALSE(bad_size);
  EXPECT_THAT(bad_size.error().message, HasSubstr("token_mask: 1 words"));
}

// A model whose embedding of one token is not a number: requests with it fail, others do not
// notice.
TEST_P(EngineTest, NonFiniteLogitsEndTheRequestOnly) {
  EngineRig rig(GetParam());
  constexpr int32_t kPoisoned = 7;
  std::vector<int32_t> prompt = tokens(40, 10);
  std::replace(prompt.begin(), prompt.end(), kPoisoned, 8);
  Request request = greedy(prompt, 6);
  request.sampling.logit_bias = {{kPoisoned, -100}};
  const Output before = rig.generate(request);

  const int64_t hidden = rig.model.config.hidden_size;
  const std::vector<BFloat16> nans(static_cast<size_t>(hidden), BFloat16{0x7FC0});
  rig.backend.device->copy_to_device(rig.model.weights.embed.values.data() + kPoisoned * hidden * 2,
                                     std::as_bytes(std::span(nans)));
  prompt.back() = kPoisoned;
  EXPECT_TRUE(rig.generate(greedy(prompt, 6)).tokens.empty());
  EXPECT_EQ(rig.completion.reason, FinishReason::kError);
  EXPECT_EQ(rig.completion.error.code, ErrorCode::kInternal);
  EXPECT_THAT(rig.completion.error.message, HasSubstr("not finite"));
  EXPECT_TRUE(rig.returned_everything());

  if (rig.model.config.tied_embeddings) return;  // the head has the same rows
  EXPECT_EQ(rig.generate(request), before);
}

// Everything an engine uses is its own: two of them in one process do not meet.
TEST_P(EngineTest, TwoEnginesOnTwoThreads) {
  RigCase other = test::small_rig_cases()[GetParam().name.ends_with("moe_bf16") ? 1 : 0];
  other.device = GetParam().device;
  EngineRig first(GetParam()), second(other);
  const Request request{
      .prompt = tokens(70, 11), .sampling = {.top_k = 20, .seed = 5}, .max_tokens = 16};
  const Output first_alone = first.generate(request), second_alone = second.generate(request);
  EXPECT_NE(first_alone.tokens, second_alone.tokens);
  for (int round = 0; round < 2; ++round) {
    Output first_output, second_output;
    std::thread thread([&] { second_output = second.generate(request); });
    first_output = first.generate(request);
    thread.join();
    EXPECT_EQ(first_output, first_alone);
    EXPECT_EQ(second_output, second_alone);
  }
}

TEST_P(EngineTest, ReportsTopLogprobs) {
  EngineRig rig(GetParam());
  Request request = greedy(tokens(4, 13), 5);
  request.top_logprobs = kTopLogprobs;
  const Engine::Hooks hooks{.on_token = [&](const TokenEvent& event) {
    EXPECT_EQ(event.top.size(), static_cast<size_t>(kTopLogprobs));
    EXPECT_EQ(TopLogprob(event.token, event.logprob), event.top[0]);  // greedy
    double mass = 0;
    for (size_t i = 0; i < event.top.size(); ++i) {
      EXPECT_LE(event.top[i].second, event.top[std::max<size_t>(i, 1) - 1].second);
      mass += std::exp(static_cast<double>(event.top[i].second));
    }
    EXPECT_LT(mass, 1.0);
    EXPECT_GT(mass, 20.0 / 320);
    return true;
  }};
  EXPECT_TRUE(rig.engine->generate(request, hooks));
}

}  // namespace
}  // namespace pewter
