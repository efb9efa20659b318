// Steps ahead: on a device that runs behind the host's back the next step is enqueued before the
// choices of the one before it are heard, wherever only tokens depend on them; with a drafter,
// before its guesses are heard. What is said stays the same.

#include <algorithm>

#include "engine/engine.h"
#include "support/counting_device.h"
#include "support/crowd.h"

namespace pewter {
namespace {

using test::CountingDevice;
using test::Output;
using test::TestRig;

constexpr RunnerOptions kOptions{.chunk_rows = 64, .max_sequences = 3, .cache_tokens = 512};

class StepsAhead : public test::RigTest {
 protected:
  void SetUp() override {
    RigTest::SetUp();
    if (!IsSkipped()) make(true);
  }
  void TearDown() override {
    engine_.reset();
    rig_.reset();
  }
  // asynchronous: what the device says of itself.
  void make(bool asynchronous, const DraftOptions& draft = {}) {
    engine_.reset();
    rig_ = TestRig::make(GetParam(), kOptions);
    rig_->runner.reset();
    device_ = std::make_unique<CountingDevice>(*rig_->backend.device, asynchronous);
    engine_ = Engine::make(rig_->model, *device_, *rig_->backend.ops,
                           {.runner = kOptions, .draft = draft})
                  .value();
  }
  Request request(int64_t max_tokens, uint64_t seed = 1) const {
    return {.prompt = tokens(20, seed),
            .sampling = {.temperature = 0},
            .max_tokens = max_tokens,
            .ignore_stop = true};
  }
  Output run(const Request& request) {
    TokenStream stream = engine_->submit(request).value();
    Output output = test::read_all(stream);
    EXPECT_TRUE(test::becomes_idle(*engine_));
    return output;
  }
  // "s" for each step that is enqueued, "w" for each wait; the first waits for the prompt's token.
  std::string events(const Request& request) {
    device_->take_events();
    EXPECT_EQ(std::ssize(run(request).tokens), request.max_tokens);
    return device_->take_events();
  }

  // What requests say that run together.
  std::vector<Output> run_all(const std::vector<Request>& requests) {
    std::vector<TokenStream> streams;
    for (const Request& wanted : requests) streams.push_back(engine_->submit(wanted).value());
    std::vector<Output> outputs;
    for (TokenStream& stream : streams) outputs.push_back(test::read_all(stream));
    EXPECT_TRUE(test::becomes_idle(*engine_));
    return outputs;
  }
  // The crowd's, and texts that stop on the way, beside others that go on.
  std::vector<Request> requests() const {
    std::vector<Request> all = test::crowd(GetParam(), 10, 3);
    for (uint64_t seed = 20; seed < 24; ++seed) {
      all.push_back(request(40, seed));
      all.back().ignore_stop = false;
      all.back().sampling = {.temperature = 1, .seed = seed};
      for (int32_t id = 0; id < 200; id += 11) all.back().stop_ids.push_back(id);
    }
    return all;
  }
  // Some times a request that leaves early, beside one that says `alone`.
  void cancel_beside(const std::vector<int32_t>& alone) {
    for (int i = 0; i < 5; ++i) {
      TokenStream left = engine_->submit(request(400)).value();
      TokenStream stays = engine_->submit(request(30, 2)).value();
      StreamNews news;
      for (int heard = 0; heard < 4; heard += static_cast<int>(news.tokens.size())) left.wait(news);
      left.cancel();
      EXPECT_EQ(test::read_all(stays).tokens, alone);
      test::read_all(left);
    }
    EXPECT_TRUE(test::becomes_idle(*engine_));
    EXPECT_EQ(engine_->status().cache_tokens_used, 0);
  }
  static void expect_same(const std::vector<Output>& ours, const std::vector<Output>& others) {
    ASSERT_EQ(ours.size(), others.size());
    for (size_t i = 0; i < ours.size(); ++i) {
      EXPECT_EQ(ours[i].tokens, others[i].tokens) << i;
      EXPECT_EQ(ours[i].logprobs, others[i].logprobs) << i;
      EXPECT_EQ(ours[i].completion.reason, others[i].completion.reason) << i;
    }
  }

  std::unique_ptr<TestRig> rig_;
  std::unique_ptr<CountingDevice> device_;
  std::unique_ptr<Engine> engine_;
};
INSTANTIATE_TEST_SUITE_P(Backends, StepsAhead, testing::ValuesIn(test::small_rig_cases()),
                         test::kRigName);

const std::string kAhead = "wsswswsww", kInTurn = "wswswswsw";

TEST_P(StepsAhead, AreEnqueuedBeforeTheWait) {
  EXPECT_EQ(events(request(5)), kAhead);
  EXPECT_EQ(events(request(2)), "wsw");
  EXPECT_EQ(events(request(1)), "w");
}

TEST_P(StepsAhead, NeedADeviceThatRunsBehindTheHost) {
  make(false);
  EXPECT_EQ(events(request(5)), kInTurn);
}

TEST_P(StepsAhead, AreLeftOutWhereAChoiceChangesTheNextOne) {
  Request wanted = request(5);
  wanted.sampling.logit_bias = {{3, 1.0f}};
  wanted.banned = {{4}};
  EXPECT_EQ(events(wanted), kAhead);
  for (float SamplingParams::* penalty :
       {&SamplingParams::presence_penalty, &SamplingParams::frequency_penalty}) {
    wanted = request(5);
    wanted.sampling.*penalty = 0.5f;
    EXPECT_EQ(events(wanted), kInTurn);
  }
  wanted = request(5);
  wanted.sampling.repetition_penalty = 1.5f;
  EXPECT_EQ(events(wanted), kInTurn);
  wanted = request(5);
  wanted.banned = {{4, 5}};
  EXPECT_EQ(events(wanted), kInTurn);
  wanted = request(5);
  wanted.allowed_ids = {1, 2, 3};
  EXPECT_EQ(events(wanted), kInTurn);
}

// Stops that may be chosen from the third token on; reasoning that is closed as the third.
TEST_P(StepsAhead, AreLeftOutWhereTheRulesChange) {
  Request wanted = request(6);
  wanted.ignore_stop = false;
  wanted.min_tokens = 2;
  wanted.sampling.logit_bias = {{7, -100.0f}};
  wanted.stop_ids = {7};
  EXPECT_EQ(events(wanted), "wswsswswsww");
  wanted = request(6);
  wanted.reasoning = {.budget = 2, .end_token = 5, .closing = {9}};
  wanted.sampling.logit_bias = {{5, -100.0f}};
  EXPECT_EQ(events(wanted), "wswswsswsww");
}

TEST_P(StepsAhead, ChangeNothingThatIsSaid) {
  const std::vector<Request> requests = this->requests();
  const std::vector<Output> ahead = run_all(requests);
  make(false);
  expect_same(ahead, run_all(requests));
  const auto stops = [](const Output& output) {
    return output.completion.reason == FinishReason::kStop;
  };
  EXPECT_GE(std::ranges::count_if(ahead, stops), 3);
}

// The step that was enqueued for a text that has stopped is lost, and nobody else's.
TEST_P(StepsAhead, AStopIsTheLastThatIsSaid) {
  Request wanted = request(40);
  const std::vector<int32_t> said = run(wanted).tokens;
  wanted.ignore_stop = false;
  wanted.stop_ids = {said[4]};
  const auto stop = std::ranges::find(said, said[4]) - said.begin();
  ASSERT_GT(stop, 0);
  device_->take_events();
  const Output output = run(wanted);
  EXPECT_EQ(output.completion.reason, FinishReason::kStop);
  EXPECT_EQ(output.tokens, std::vector<int32_t>(said.begin(), said.begin() + stop + 1));
  // One step more than tokens behind the prompt's, which the next request waits for.
  EXPECT_EQ(std::ranges::count(device_->take_events(), 's'), stop + 1);
  EXPECT_EQ(run(request(5)).tokens, std::vector<int32_t>(said.begin(), said.begin() + 5));
  EXPECT_EQ(device_->take_events(), "w" + kAhead);
}

// Cancelled while a step of it is on its way.
TEST_P(StepsAhead, AreForgottenWithTheirRequest) {
  const std::vector<int32_t> alone = run(request(30, 2)).tokens;
  cancel_beside(alone);
}

constexpr DraftOptions kDrafts{.method = DraftMethod::kMtp, .tokens = 3};

// Whether behind the prompt's token there are rounds alone, the last token perhaps in a step of its
// own, for which nothing is guessed.
bool are_rounds(std::string_view events, std::string_view round) {
  if (!events.starts_with('w')) return false;
  events.remove_prefix(1);
  if (!events.starts_with(round)) return false;
  while (events.starts_with(round)) events.remove_prefix(round.size());
  return events.empty() || events == "sw";
}

// Guesses, the step that verifies them, a wait for each.
TEST_P(StepsAhead, VerifyGuessesThatAreNotHeard) {
  make(true, kDrafts);
  EXPECT_PRED2(are_rounds, events(request(30)), "ssww");
  make(false, kDrafts);
  EXPECT_PRED2(are_rounds, events(request(30)), "swsw");
}

TEST_P(StepsAhead, VerifyWithoutChangingWhatIsSaid) {
  std::vector<Request> requests = this->requests();
  for (size_t i = 0; i < requests.size(); i += 3) requests[i].sampling.presence_penalty = 0.6f;
  const std::vector<Output> plain = run_all(requests);
  for (const DraftLength depth : {DraftLength::kFixed, DraftLength::kByCost}) {
    DraftOptions draft = kDrafts;
    draft.depth = depth;
    make(true, draft);
    expect_same(run_all(requests), plain);
    EXPECT_GT(engine_->status().drafts.draft_tokens, 0);
  }
}

// A guess of a stop is none, whether it was verified or not.
TEST_P(StepsAhead, CountTheSameGuesses) {
  std::vector<std::pair<int64_t, int64_t>> guessed_and_right;
  for (const bool asynchronous : {false, true}) {
    make(asynchronous, kDrafts);
    for (const Request& wanted : requests()) run(wanted);
    const DraftFigures& drafts = engine_->status().drafts;
    guessed_and_right.emplace_back(drafts.draft_tokens, drafts.accepted_tokens);
  }
  EXPECT_GT(guessed_and_right[0].first, 0);
  EXPECT_EQ(guessed_and_right[0], guessed_and_right[1]);
}

// Cancelled while its guesses are verified, beside others.
TEST_P(StepsAhead, VerifyForThoseWhoStay) {
  const std::vector<int32_t> alone = run(request(30, 2)).tokens;
  make(true, kDrafts);
  cancel_beside(alone);
}

}  // namespace
}  // namespace pewter
