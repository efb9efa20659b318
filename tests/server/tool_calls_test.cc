// Tool calls through the server: whole and streamed, with and without thinking, there and back.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/file.h"
#include "client.h"
#include "running_server.h"

namespace pewter::server_test {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::MatchesRegex;

class Tools : public testing::Test {
 protected:
  static RunningServer& server() {
    static RunningServer running;
    return running;
  }
  static std::string tools() {
    return read_file(std::string(PEWTER_SOURCE_DIR) + "/tools/demo_tools.json").value();
  }
  static std::string body(const std::string& more, bool thinking, const std::string& later = "") {
    return str_cat(R"({"model":"m","temperature":0,"tools":)", tools(),
                   R"(,"chat_template_kwargs":{"enable_thinking":)", thinking,
                   R"(},"messages":[{"role":"user","content":"What is the weather in Paris?"})",
                   later, "]", more, "}");
  }
  static Answer ask(const std::string& json) {
    return post(server().port(), "/v1/chat/completions", json);
  }
  static Json choice(const std::string& more, bool thinking, const std::string& later = "") {
    const Answer answer = ask(body(more, thinking, later));
    EXPECT_EQ(answer.status, 200) << answer.body;
    return answer.json().find("choices")->as_array().at(0);
  }
  // The field an error names.
  static std::string refused(const std::string& json) {
    const Answer answer = ask(json);
    EXPECT_EQ(answer.status, 400) << answer.body;
    return answer.json().find("error")->find("param")->as_string();
  }
};

TEST_F(Tools, ArriveAsToolCalls) {
  for (const bool thinking : {false, true}) {
    const Json one = choice("", thinking);
    EXPECT_EQ(one.find("finish_reason")->as_string(), "tool_calls");
    const Json& message = *one.find("message");
    EXPECT_TRUE(message.find("content")->is_null());
    EXPECT_EQ(message.find("reasoning") != nullptr, thinking);
    const Json::Array& calls = message.find("tool_calls")->as_array();
    ASSERT_EQ(calls.size(), 1u);
    EXPECT_THAT(calls[0].find("id")->as_string(), MatchesRegex("call_[0-9a-f]+"));
    EXPECT_EQ(calls[0].find("id")->as_string().size(), 29u);
    EXPECT_EQ(calls[0].find("type")->as_string(), "function");
    EXPECT_EQ(calls[0].find("function")->dump(),
              R"({"name":"get_weather","arguments":"{\"city\": \"Paris\"}"})");
  }
}

TEST_F(Tools, StreamTheSame) {
  for (const bool thinking : {false, true}) {
    const Answer answer =
        ask(body(R"(,"stream":true,"stream_options":{"include_usage":true})", thinking));
    EXPECT_EQ(answer.status, 200);
    std::vector<std::string> names, pieces, ids, reasons;
    std::string arguments, content;
    int64_t tokens = 0, events = 0;
    for (const std::string& event : answer.events()) {
      if (event == "[DONE]") continue;
      const Json chunk = Json::parse(event).value();
      ++events;
      if (const Json* usage = chunk.find("usage"))
        tokens = usage->find("completion_tokens")->as_integer();
      for (const Json& one : chunk.find("choices")->as_array()) {
        if (!one.find("finish_reason")->is_null())
          reasons.push_back(one.find("finish_reason")->as_string());
        const Json& delta = *one.find("delta");
        if (const Json* text = delta.find("content")) content += text->as_string();
        const Json* calls = delta.find("tool_calls");
        if (calls == nullptr) continue;
        for (const Json& call : calls->as_array()) {
          EXPECT_EQ(call.find("index")->as_integer(), 0);
          const Json& function = *call.find("function");
          if (const Json* name = function.find("name")) names.push_back(name->as_string());
          if (const Json* id = call.find("id")) ids.push_back(id->as_string());
          pieces.push_back(function.find("arguments")->as_string());
          arguments += pieces.back();
        }
      }
    }
    EXPECT_THAT(names, ElementsAre("get_weather"));
    EXPECT_EQ(ids.size(), 1u);
    EXPECT_EQ(arguments, R"({"city": "Paris"})");
    EXPECT_GT(pieces.size(), 2u);
    EXPECT_EQ(pieces.front(), "");
    EXPECT_EQ(content, "");
    EXPECT_THAT(reasons, ElementsAre("tool_calls"));
    EXPECT_GE(events, tokens + 1);  // still one a token
  }
}

TEST_F(Tools, ComeBackAsMessages) {
  for (const char* arguments : {R"("{\"city\": \"Paris\"}")", R"({"city":"Paris"})"}) {
    const std::string call =
        str_cat(R"({"role":"assistant","content":null,"tool_calls":[{"id":"c1","type":"function",)",
                R"("function":{"name":"get_weather","arguments":)", arguments, "}}]}");
    const std::string result =
        R"({"role":"tool","tool_call_id":"c1",)"
        R"("content":"{\"city\": \"Paris\", \"degrees\": 21, \"sky\": \"sunny\"}"})";
    const Json one = choice("", false, str_cat(",", call, ",", result));
    EXPECT_EQ(one.find("finish_reason")->as_string(), "stop");
    EXPECT_EQ(one.find("message")->find("tool_calls"), nullptr);
    EXPECT_THAT(one.find("message")->find("content")->as_string(), HasSubstr("with 21 degrees"));
  }
}

TEST_F(Tools, AreTextWhereNoneAreWanted) {
  const Json one = choice(R"(,"tool_choice":"none")", false);
  EXPECT_EQ(one.find("finish_reason")->as_string(), "stop");
  EXPECT_EQ(one.find("message")->find("tool_calls"), nullptr);
  EXPECT_THAT(one.find("message")->find("content")->as_string(), HasSubstr("<tool_call>"));
}

TEST_F(Tools, EndWithTheFirstWhereOnlyOneIsWanted) {
  const Answer answer =
      ask(body(R"(,"parallel_tool_calls":false,"max_tokens":60,"ignore_eos":true)", false));
  ASSERT_EQ(answer.status, 200) << answer.body;
  const Json response = answer.json();
  const Json& one = response.find("choices")->as_array().at(0);
  EXPECT_EQ(one.find("finish_reason")->as_string(), "tool_calls");
  EXPECT_EQ(one.find("message")->find("tool_calls")->as_array().size(), 1u);
  EXPECT_LT(response.find("usage")->find("completion_tokens")->as_integer(), 25);
  EXPECT_TRUE(server().is_idle_within(std::chrono::seconds(5)));
}

TEST_F(Tools, ThatAreCutOffStayUnterminated) {
  const Json one = choice(R"(,"max_tokens":10)", false);
  EXPECT_EQ(one.find("finish_reason")->as_string(), "length");
  const Json& call = one.find("message")->find("tool_calls")->as_array().at(0);
  EXPECT_EQ(call.find("function")->find("arguments")->as_string(), R"({"city": "Paris)");
}

TEST_F(Tools, StopStringsDoNotCountInArguments) {
  const Json one = choice(R"(,"stop":"Paris")", false);
  EXPECT_EQ(one.find("finish_reason")->as_string(), "tool_calls");
}

TEST_F(Tools, SayWhatIsWrong) {
  const std::string plain = R"({"messages":[{"role":"user","content":"hi"}])";
  for (const char* some :
       {"\"auto\"", "\"none\"", "\"required\"", R"({"type":"function","function":{"name":"f"}})"})
    EXPECT_EQ(refused(str_cat(plain, ",\"tool_choice\":", some, "}")), "tool_choice");
  const auto choose = [](const std::string& some) {
    return refused(body(",\"tool_choice\":" + some, false));
  };
  EXPECT_EQ(choose("\"sometimes\""), "tool_choice");
  EXPECT_EQ(choose("5"), "tool_choice");
  EXPECT_EQ(choose("{}"), "tool_choice.function");
  EXPECT_EQ(choose(R"({"type":"custom","custom":{"name":"x"}})"), "tool_choice.type");
  EXPECT_EQ(choose(R"({"type":"function","function":{}})"), "tool_choice.function.name");
  EXPECT_EQ(choose(R"({"type":"function","function":{"name":"no_such_tool"}})"),
            "tool_choice.function.name");
  EXPECT_EQ(refused(body(R"(,"parallel_tool_calls":"no")", false)), "parallel_tool_calls");
}

}  // namespace
}  // namespace pewter::server_test
