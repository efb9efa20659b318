// An answer in the making without a connection: what is sent when, and what a client's leaving
// does.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <thread>

#include "running_server.h"
#include "server/testing/recorded_exchange.h"

namespace pewter::server_test {
namespace {

using namespace std::chrono_literals;
using server::RecordedExchange;
using testing::EndsWith;
using testing::HasSubstr;
using testing::IsEmpty;

class Generation : public testing::Test {
 protected:
  static const RunningServer& server() {
    static const RunningServer running({.max_sequences = 1, .max_waiting = 1});
    return running;
  }
  // A chat that has been started, but whose tokens nobody has looked at.
  static std::shared_ptr<RecordedExchange> start(const std::string& more, bool gone = false) {
    const auto exchange = std::make_shared<RecordedExchange>(server::HttpRequest{
        .body = R"({"messages":[{"role":"user","content":"What is the capital of France?"}],)"
                R"("temperature":0,"chat_template_kwargs":{"enable_thinking":false})" +
                more + "}"});
    exchange->is_gone = gone;
    Result<server::Outcome> outcome = server::chat_completions(exchange->request(), server().model);
    start_generation(exchange, std::get<server::GenerationPlan>(std::move(*outcome)));
    return exchange;
  }
  static bool wait_idle() { return server().is_idle_within(5s); }
};

TEST_F(Generation, SaysNothingBeforeTheFirstTokenButPings) {
  const auto exchange = start(",\"stream\":true");
  EXPECT_EQ(exchange->response->content_type, "text/event-stream; charset=utf-8");
  EXPECT_THAT(exchange->streamed, IsEmpty());
  const auto now = server::Clock::now();
  exchange->activity->tick(now + 10s);
  EXPECT_THAT(exchange->streamed, IsEmpty());
  exchange->activity->tick(now + 16s);
  EXPECT_EQ(exchange->streamed, ": ping\n\n");
  ASSERT_TRUE(wait_idle());
  exchange->run_posted();
  EXPECT_TRUE(exchange->is_finished);
  EXPECT_THAT(exchange->streamed, HasSubstr("\"role\":\"assistant\""));
  EXPECT_THAT(exchange->streamed, EndsWith("data: [DONE]\n\n"));
  EXPECT_THAT(exchange->remark, HasSubstr("stop"));
  exchange->activity->tick(now + 100s);  // all is said
  EXPECT_THAT(exchange->streamed, EndsWith("data: [DONE]\n\n"));
}

TEST_F(Generation, IsNotStartedForNobody) {
  const auto exchange = start("", /*gone=*/true);
  EXPECT_TRUE(exchange->is_abandoned);
  EXPECT_EQ(exchange->activity, nullptr);
  EXPECT_EQ(server().loaded->engine->status().running + server().loaded->engine->status().waiting,
            0);
}

TEST_F(Generation, EndsWithItsClient) {
  const auto exchange = start(",\"max_tokens\":4000,\"ignore_eos\":true");
  exchange->activity->client_gone();
  EXPECT_TRUE(exchange->is_abandoned);
  EXPECT_TRUE(wait_idle());
  exchange->run_posted();
  EXPECT_EQ(exchange->response, std::nullopt);
}

TEST_F(Generation, EndsWithTheExchangeThatKeepsIt) {
  auto exchange = start(",\"max_tokens\":4000,\"ignore_eos\":true");
  const std::weak_ptr<server::Activity> activity = exchange->activity;
  exchange->activity.reset();
  EXPECT_TRUE(activity.expired());
  EXPECT_TRUE(wait_idle());
}

TEST_F(Generation, WithTooManyChoicesLeavesNoneBehind) {
  const auto exchange = start(",\"n\":5,\"max_tokens\":4000,\"ignore_eos\":true");
  EXPECT_EQ(exchange->response->status, 429);
  exchange->activity.reset();
  EXPECT_TRUE(wait_idle());
}

}  // namespace
}  // namespace pewter::server_test
