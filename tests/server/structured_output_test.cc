// Answers of a given form through the server: whatever the model would rather say, what comes has
// that form, behind reasoning or without, whole and streamed, with drafts; and forced tool calls.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/file.h"
#include "client.h"
#include "running_server.h"

namespace pewter::server_test {
namespace {

using testing::AnyOf;
using testing::HasSubstr;
using testing::MatchesRegex;

constexpr const char* kPerson =
    R"({"type":"object","properties":{"name":{"type":"string","maxLength":12},"age":{"type":"integer",
    "minimum":0,"maximum":150},"likes":{"type":"array","items":{"enum":["tea","coffee"]},"maxItems":3}},
    "required":["name","age","likes"],"additionalProperties":false})";

class StructuredOutput : public testing::Test {
 protected:
  static RunningServer& server() {
    static RunningServer running(
        {.draft = {.method = DraftMethod::kSuffix, .tokens = 4, .shortest_match = 1}});
    return running;
  }
  static std::string chat(const std::string& more, bool thinking = false,
                          const std::string& question = "What is the capital of France?") {
    return str_cat(
        R"({"model":"m","temperature":0,"max_tokens":200,"chat_template_kwargs":{"enable_thinking":)",
        thinking, R"(},"messages":[{"role":"user","content":")", question, "\"}]", more, "}");
  }
  static Answer ask(const std::string& json, const std::string& path = "/v1/chat/completions") {
    return post(server().port(), path, json);
  }
  static Json choice(const std::string& body, const std::string& path = "/v1/chat/completions") {
    const Answer answer = ask(body, path);
    EXPECT_EQ(answer.status, 200) << answer.body;
    return answer.json().find("choices")->as_array().at(0);
  }
  static std::string content(const Json& choice) {
    return choice.find("message")->find("content")->as_string();
  }
  static Json error(const std::string& body) {
    const Answer answer = ask(body);
    EXPECT_EQ(answer.status, 400) << answer.body;
    return *answer.json().find("error");
  }
  static void expect_person(const std::string& text) {
    const auto person = Json::parse(text);
    ASSERT_TRUE(person) << text;
    EXPECT_LE(person->find("name")->as_string().size(), 48u);
    EXPECT_GE(person->find("age")->as_integer(), 0);
    EXPECT_LE(person->find("age")->as_integer(), 150);
    for (const Json& drink : person->find("likes")->as_array())
      EXPECT_THAT(drink.as_string(), AnyOf("tea", "coffee"));
    EXPECT_EQ(person->as_object().size(), 3u);
  }
  static std::string tools() {
    return ",\"tools\":" +
           read_file(std::string(PEWTER_SOURCE_DIR) + "/tools/demo_tools.json").value();
  }
};

TEST_F(StructuredOutput, FollowsASchema) {
  const std::string format = str_cat(
      R"(,"response_format":{"type":"json_schema","json_schema":{"name":"person","strict":true,"schema":)",
      kPerson, "}}");
  for (const bool thinking : {false, true}) {
    const Json one = choice(chat(format, thinking));
    EXPECT_EQ(one.find("finish_reason")->as_string(), "stop");
    expect_person(content(one));
    const Json* reasoning = one.find("message")->find("reasoning");
    EXPECT_EQ(reasoning != nullptr && !reasoning->is_null(), thinking);
    if (thinking) {
      EXPECT_THAT(reasoning->as_string(), HasSubstr("Paris"));
    }
  }
}

TEST_F(StructuredOutput, StreamsAndSamples) {
  const std::string body =
      chat(str_cat(R"(,"stream":true,"temperature":1.2,"seed":3,"n":2,"guided_json":)", kPerson));
  std::vector<std::string> texts(2);
  for (const std::string& event : ask(body).events()) {
    if (event == "[DONE]") continue;
    const Json chunk = Json::parse(event).value();
    for (const Json& one : chunk.find("choices")->as_array())
      if (const Json* text = one.find("delta")->find("content"); text && text->is_string())
        texts[static_cast<size_t>(one.find("index")->as_integer())] += text->as_string();
  }
  expect_person(texts[0]);
  expect_person(texts[1]);
  EXPECT_NE(texts[0], texts[1]);
}

TEST_F(StructuredOutput, HasManyNames) {
  const std::string schema =
      R"({"type":"object","properties":{"ok":{"type":"boolean"}},"required":["ok"]})";
  for (const std::string& more :
       {str_cat(R"(,"guided_json":)", schema),
        str_cat(R"(,"structured_outputs":{"json":)", schema, "}"),
        str_cat(R"(,"json_schema":)", schema),
        str_cat(R"(,"response_format":{"type":"json_object","schema":)", schema, "}"),
        str_cat(R"(,"guided_json":")",
                R"({\"type\":\"object\",\"properties\":{\"ok\":{\"type\":\"boolean\"}},)",
                R"(\"required\":[\"ok\"]}")")})
    EXPECT_THAT(content(choice(chat(more))), MatchesRegex(R"(\{\s*"ok"\s*:\s*(true|false)\s*\})"))
        << more;
  for (const char* more :
       {R"(,"guided_choice":["Rome","Berlin"])",
        R"(,"structured_outputs":{"choice":["Rome","Berlin"]})", R"(,"guided_regex":"Rome|Berlin")",
        R"(,"structured_outputs":{"regex":"Rome|Berlin"})",
        R"(,"grammar":"root ::= \"Rome\" | \"Berlin\"")",
        R"(,"guided_grammar":"root ::= \"R\" \"ome\" | \"Berlin\"")"})
    EXPECT_THAT(content(choice(chat(more))), AnyOf("Rome", "Berlin")) << more;
  const Json any = choice(chat(R"(,"response_format":{"type":"json_object"},"max_tokens":60)"));
  EXPECT_EQ(content(any).at(0), '{');
  const Json completion =
      choice(R"({"prompt":"1, 2, 3,","temperature":0,"max_tokens":20,"guided_regex":"[a-c]{3}"})",
             "/v1/completions");
  EXPECT_THAT(completion.find("text")->as_string(), MatchesRegex("[a-c]{3}"));
  EXPECT_EQ(completion.find("finish_reason")->as_string(), "stop");
}

TEST_F(StructuredOutput, StandsInFreeText) {
  // What follows a trigger has its form, drafted or not; the model says it of its own accord.
  const std::string tags =
      R"("triggers":["France"],"structures":[{"begin":"France","schema":{"enum":[7]},"end":"!"}])";
  const std::string more = R"(,"response_format":{"type":"structural_tag",)" + tags + "}";
  const std::string said = content(choice(chat(more)));
  EXPECT_THAT(said, HasSubstr("France7!")) << said;
  EXPECT_EQ(content(choice(chat(R"(,"structured_outputs":{"structural_tag":{)" + tags + "}}"))),
            said);
}

TEST_F(StructuredOutput, IsCutByTheTokenLimitAndNothingElse) {
  const Json one = choice(chat(str_cat(R"(,"max_tokens":4,"guided_json":)", kPerson)));
  EXPECT_EQ(one.find("finish_reason")->as_string(), "length");
  const Json whole =
      choice(chat(str_cat(R"(,"ignore_eos":true,"min_tokens":150,"guided_json":)", kPerson)));
  EXPECT_EQ(whole.find("finish_reason")->as_string(), "stop");
  expect_person(content(whole));
}

TEST_F(StructuredOutput, ForcesCalls) {
  for (const bool thinking : {false, true}) {
    // A question that needs no tool.
    const Json one = choice(chat(tools() + R"(,"tool_choice":"required")", thinking));
    EXPECT_EQ(one.find("finish_reason")->as_string(), "tool_calls");
    const Json& call = one.find("message")->find("tool_calls")->as_array().at(0);
    EXPECT_THAT(call.find("function")->find("name")->as_string(),
                AnyOf("get_weather", "set_timer"));
    EXPECT_TRUE(
        Json::parse(call.find("function")->find("arguments")->as_string()).value().is_object());
    // The other tool than the one that is asked for.
    const Json named = choice(
        chat(tools() + R"(,"tool_choice":{"type":"function","function":{"name":"set_timer"}})",
             thinking, "What is the weather in Paris?"));
    EXPECT_EQ(named.find("finish_reason")->as_string(), "stop");
    const Json::Array& calls = named.find("message")->find("tool_calls")->as_array();
    ASSERT_EQ(calls.size(), 1u);
    EXPECT_EQ(calls[0].find("function")->find("name")->as_string(), "set_timer");
    const Json arguments =
        Json::parse(calls[0].find("function")->find("arguments")->as_string()).value();
    EXPECT_TRUE(arguments.find("minutes")->is_integer()) << arguments.dump();
    EXPECT_TRUE(named.find("message")->find("content")->is_null());
  }
}

TEST_F(StructuredOutput, HoldsStrictToolsToTheirSchemas) {
  const std::string strict =
      R"(,"tools":[{"type":"function","function":{"name":"get_weather","strict":true,"parameters":{"type":"object",
      "properties":{"city":{"type":"string","enum":["Rome","Oslo"]},"days":{"type":"integer","minimum":2,"maximum":5}},
      "required":["city","days"],"additionalProperties":false}}}])";
  const Json one = choice(chat(strict, false, "What is the weather in Paris?"));
  ASSERT_EQ(one.find("finish_reason")->as_string(), "tool_calls") << one.dump();
  const Json& call = one.find("message")->find("tool_calls")->as_array().at(0);
  const Json arguments = Json::parse(call.find("function")->find("arguments")->as_string()).value();
  EXPECT_THAT(arguments.find("city")->as_string(), AnyOf("Rome", "Oslo"));
  EXPECT_GE(arguments.find("days")->as_integer(), 2);
  // Text is still free.
  EXPECT_THAT(content(choice(chat(strict))), HasSubstr("Paris"));
  // Beside a format it is the one or the other.
  const Json format = choice(chat(strict + R"(,"guided_choice":["no idea"])"));
  const Json& message = *format.find("message");
  EXPECT_TRUE(message.find("tool_calls") != nullptr ||
              message.find("content")->as_string() == "no idea");
}

TEST_F(StructuredOutput, SaysWhatIsWrong) {
  const auto refused = [](const std::string& more) { return error(chat(more)); };
  const auto schema = [&](const std::string& text) {
    return refused(
        R"(,"response_format":{"type":"json_schema","json_schema":{"name":"x","schema":)" + text +
        "}}");
  };
  const Json unsupported =
      schema(R"({"type":"object","properties":{"a":{"type":"array","uniqueItems":true}}})");
  EXPECT_EQ(unsupported.find("param")->as_string(), "response_format.json_schema.schema");
  EXPECT_THAT(unsupported.find("message")->as_string(),
              HasSubstr("#/properties/a: uniqueItems is supported where"));
  EXPECT_THAT(schema(R"({"type":"nothing"})").find("message")->as_string(), HasSubstr("#/type"));
  EXPECT_THAT(schema("false").find("message")->as_string(), HasSubstr("no text matches"));
  const std::pair<const char*, const char*> wrong[] = {
      {R"(,"response_format":{"type":"json_schema"})", "response_format"},
      {R"(,"response_format":{"type":"json_schema","json_schema":{"name":"x"}})",
       "response_format.json_schema.schema"},
      {R"(,"response_format":{"type":"yaml"})", "response_format.type"},
      {R"(,"response_format":"json")", "response_format"},
      {R"(,"guided_json":5)", "guided_json"},
      {R"(,"guided_json":"{")", "guided_json"},
      {R"(,"guided_regex":"(a")", "guided_regex"},
      {R"(,"guided_regex":"a\\bb")", "guided_regex"},
      {R"(,"guided_regex":["a"])", "guided_regex"},
      {R"(,"guided_choice":[])", "guided_choice"},
      {R"(,"guided_choice":[1])", "guided_choice"},
      {R"(,"guided_grammar":"start ::= x")", "guided_grammar"},
      {R"(,"grammar":"root ::= root \"a\"")", "grammar"},
      {R"(,"structured_outputs":{"structural_tag":"x"})", "structured_outputs.structural_tag"},
      {R"(,"guided_regex":"a","guided_choice":["b"])", "guided_choice"},
      {R"(,"guided_regex":"a","response_format":{"type":"json_object"})", "guided_regex"},
  };
  for (const auto& [more, field] : wrong)
    EXPECT_EQ(refused(more).find("param")->as_string(), field) << more;
  const Json tool = refused(
      R"(,"tools":[{"type":"function","function":{"name":"f","strict":true,"parameters":{"$dynamicRef":"#"}}}])");
  EXPECT_EQ(tool.find("param")->as_string(), "tools");
  EXPECT_THAT(tool.find("message")->as_string(), HasSubstr("f: #: $dynamicRef is not supported"));
}

}  // namespace
}  // namespace pewter::server_test
