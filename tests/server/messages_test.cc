// /v1/messages: blocks and events as Anthropic spells them, whole and streamed, and its errors.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/file.h"
#include "client.h"
#include "running_server.h"

namespace pewter::server_test {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::StartsWith;

class Messages : public testing::Test {
 protected:
  static RunningServer& server() {
    static RunningServer running;
    return running;
  }
  static std::string body(const std::string& more,
                          const std::string& question = "What is the capital of France?") {
    return R"({"model":"m","max_tokens":200,"temperature":0,"messages":[{"role":"user","content":")" +
           question + "\"}]" + more + "}";
  }
  static Answer ask(const std::string& json) { return post(server().port(), "/v1/messages", json); }
  // The events' types, or with "text" what their deltas add up to.
  static std::string told(const Answer& answer, const std::string& what) {
    std::string all;
    for (const std::string& text : answer.events()) {
      const Json event = Json::parse(text).value();
      const Json* delta = event.find("delta");
      const Json* piece = delta == nullptr ? nullptr : delta->find(what);
      if (what == "type")
        all += event.find("type")->as_string() + " ";
      else if (piece != nullptr)
        all += piece->as_string();
    }
    return all;
  }
};

TEST_F(Messages, AreMadeOfBlocks) {
  const Json answer = ask(body("")).json();
  EXPECT_THAT(answer.find("id")->as_string(), StartsWith("msg_"));
  EXPECT_EQ(answer.find("content")->dump(),
            R"([{"type":"text","text":"The capital of France is Paris."}])");
  EXPECT_EQ(answer.find("stop_reason")->as_string(), "end_turn");
  const Json thought = ask(body(R"(,"thinking":{"type":"enabled","budget_tokens":100})")).json();
  const Json::Array& blocks = thought.find("content")->as_array();
  ASSERT_EQ(blocks.size(), 2u);
  EXPECT_THAT(blocks[0].find("thinking")->as_string(), HasSubstr("Paris"));
  EXPECT_NE(blocks[0].find("signature")->as_string(), "");
  EXPECT_EQ(blocks[1].find("text")->as_string(), "The capital of France is Paris.");
}

TEST_F(Messages, StreamTheirBlocks) {
  const Answer answer =
      ask(body(R"(,"stream":true,"thinking":{"type":"enabled","budget_tokens":100})"));
  EXPECT_THAT(answer.body, StartsWith("event: message_start\ndata: {\"type\":\"message_start\""));
  EXPECT_THAT(answer.body,
              testing::EndsWith("event: message_stop\ndata: {\"type\":\"message_stop\"}\n\n"));
  EXPECT_EQ(told(answer, "text"), "The capital of France is Paris.");
  EXPECT_THAT(told(answer, "thinking"), HasSubstr("Paris"));
  EXPECT_EQ(told(answer, "stop_reason"), "end_turn");
  std::string kinds = told(answer, "type");
  // Deltas of one block in a row count once.
  const std::string twice = "content_block_delta content_block_delta ";
  for (size_t at; (at = kinds.find(twice)) != std::string::npos;) kinds.erase(at, twice.size() / 2);
  const std::string block = "content_block_start content_block_delta content_block_stop ";
  EXPECT_EQ(kinds, "message_start " + block + block + "message_delta message_stop ");
}

TEST_F(Messages, CallTools) {
  const std::string tools =
      R"(,"tools":[{"name":"get_weather","description":"Get the current weather of a city.",)"
      R"("input_schema":{"type":"object","properties":{"city":{"type":"string"},)"
      R"("unit":{"type":"string"}},"required":["city"]}}])";
  const std::string question = "What is the weather in Paris?";
  const Json whole = ask(body(tools, question)).json();
  EXPECT_EQ(whole.find("stop_reason")->as_string(), "tool_use");
  const Json& use = whole.find("content")->as_array().at(0);
  EXPECT_EQ(use.find("name")->as_string(), "get_weather");
  EXPECT_EQ(use.find("input")->dump(), R"({"city":"Paris"})");
  EXPECT_EQ(told(ask(body(tools + ",\"stream\":true", question)), "partial_json"),
            R"({"city": "Paris"})");
  // Half a call is a prefix in a stream, and nothing in a message.
  const Json cut = ask(body(tools + ",\"max_tokens\":10", question)).json();
  EXPECT_EQ(cut.find("content")->dump(), "[]");
  EXPECT_EQ(cut.find("stop_reason")->as_string(), "max_tokens");
  EXPECT_EQ(told(ask(body(tools + ",\"max_tokens\":10,\"stream\":true", question)), "partial_json"),
            R"({"city": "Paris)");
}

TEST_F(Messages, CountTheirTokens) {
  const Answer count = post(server().port(), "/v1/messages/count_tokens", body(""));
  EXPECT_EQ(count.json().find("input_tokens")->as_integer(),
            ask(body("")).json().find("usage")->find("input_tokens")->as_integer());
}

TEST_F(Messages, FailInTheirOwnForm) {
  const auto error = [](const Answer& answer) {
    const Json json = answer.json();
    EXPECT_EQ(json.find("type")->as_string(), "error");
    return str_cat(answer.status, " ", json.find("error")->find("type")->as_string());
  };
  EXPECT_EQ(error(ask("{")), "400 invalid_request_error");
  EXPECT_EQ(error(ask(body(",\"model\":\"other\""))), "404 not_found_error");
  EXPECT_EQ(error(get(server().port(), "/v1/messages")), "405 invalid_request_error");
  EXPECT_EQ(error(post(server().port(), "/v1/messages/batches", "{}")), "404 not_found_error");
  std::string book;
  for (int i = 0; i < 9000; ++i) book += " lorem";
  const Answer too_long = ask(body("", book));
  EXPECT_EQ(error(too_long), "400 invalid_request_error");
  EXPECT_THAT(too_long.body, HasSubstr("prompt is too long: "));
  RunningServer loading({.api_keys = {"k"}, .ready = false});
  EXPECT_EQ(error(post(loading.port(), "/v1/messages", body(""))), "401 authentication_error");
  Client client(loading.port());
  client.post("/v1/messages", body(""), "x-api-key: k\r\n");
  EXPECT_EQ(error(client.receive()), "503 overloaded_error");
}

}  // namespace
}  // namespace pewter::server_test
