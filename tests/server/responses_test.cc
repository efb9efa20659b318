// /v1/responses: items and numbered events, whole and streamed, and how they end.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "client.h"
#include "running_server.h"
#include "server/responses/responses_format.h"

namespace pewter::server_test {
namespace {

using testing::HasSubstr;
using testing::StartsWith;

class Responses : public testing::Test {
 protected:
  static RunningServer& server() {
    static RunningServer running;
    return running;
  }
  static Answer ask(const std::string& more) {
    return post(server().port(), "/v1/responses",
                R"({"input":"What is the capital of France?","temperature":0)" + more + "}");
  }
};

TEST_F(Responses, AreMadeOfItems) {
  const Json response = ask("").json();
  EXPECT_THAT(response.find("id")->as_string(), StartsWith("resp_"));
  EXPECT_EQ(response.find("status")->as_string(), "completed");
  const Json::Array& output = response.find("output")->as_array();
  ASSERT_EQ(output.size(), 2u);
  EXPECT_EQ(output[0].find("type")->as_string(), "reasoning");
  EXPECT_EQ(output[1].find("content")->as_array().at(0).find("text")->as_string(),
            "The capital of France is Paris.");
  const Json cut = ask(",\"max_output_tokens\":3").json();
  EXPECT_EQ(cut.find("status")->as_string(), "incomplete");
  EXPECT_EQ(cut.find("output")->as_array().back().find("status")->as_string(), "incomplete");
}

TEST_F(Responses, StreamNumberedEvents) {
  const Answer answer = ask(",\"stream\":true");
  int64_t number = 0;
  std::string kinds, last;
  for (const std::string& text : answer.events()) {
    const Json event = Json::parse(text).value();
    EXPECT_EQ(event.find("sequence_number")->as_integer(), number++);
    const std::string kind = event.find("type")->as_string();
    if (kind != last) kinds += kind.substr(sizeof("response")) + " ";
    last = kind;
  }
  EXPECT_EQ(kinds,
            "created in_progress output_item.added content_part.added reasoning_text.delta "
            "reasoning_text.done content_part.done output_item.done output_item.added "
            "content_part.added output_text.delta output_text.done content_part.done "
            "output_item.done completed ");
  EXPECT_THAT(answer.body, StartsWith("event: response.created\ndata: {"));
  EXPECT_THAT(answer.body, testing::Not(HasSubstr("[DONE]")));
}

TEST_F(Responses, FailWithAnEventOfTheirOwn) {
  const auto format = server::make_responses_format(server().model, Json(Json::Object{}));
  std::string out;
  format->fail({ErrorCode::kInternal, "the device is \"gone\""}, out);
  const Json event = Json::parse(out.substr(out.find('{'))).value();
  EXPECT_EQ(event.find("type")->as_string(), "response.failed");
  const Json& response = *event.find("response");
  EXPECT_EQ(response.find("status")->as_string(), "failed");
  EXPECT_EQ(response.find("error")->find("message")->as_string(), "the device is \"gone\"");
  const Answer refused = ask(",\"previous_response_id\":\"resp_1\"");
  EXPECT_EQ(refused.status, 400);
  EXPECT_THAT(refused.body, HasSubstr("send the full input"));
}

}  // namespace
}  // namespace pewter::server_test
