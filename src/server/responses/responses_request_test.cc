// The items of /v1/responses as the chats they become, and which field is named when they cannot.
#include "server/responses/responses_request.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace pewter::server {
namespace {

using testing::ElementsAre;

Result<ResponsesRequest> parse(const std::string& members) {
  return parse_responses_request("{" + members + "}", {});
}
ResponsesRequest good(const std::string& members) {
  Result<ResponsesRequest> request = parse(members);
  EXPECT_TRUE(request) << request.error().message << " in " << members;
  return request ? *std::move(request) : ResponsesRequest{};
}
std::string conversation(const std::string& items, const std::string& more = "") {
  return good("\"input\":[" + items + "]" + more).chat.chat.messages.dump();
}
std::string refused(const std::string& members) {
  const Result<ResponsesRequest> request = parse(members);
  return request ? "accepted" : std::string(field_of(request.error().message));
}

TEST(ResponsesRequest, ReadsTexts) {
  EXPECT_EQ(good("\"input\":\"hi\"").chat.chat.messages.dump(),
            R"([{"role":"user","content":"hi"}])");
  EXPECT_EQ(conversation(R"({"role":"user","content":"a"},{"type":"message","role":"assistant",)"
                         R"("id":"msg_1","status":"completed","content":[{"type":"output_text",)"
                         R"("text":"b","annotations":[]},{"type":"refusal","refusal":"c"}]},)"
                         R"({"role":"user","content":[{"type":"input_text","text":"d"}]})"),
            R"([{"role":"user","content":"a"},{"role":"assistant","content":"bc"},)"
            R"({"role":"user","content":"d"}])");
}

TEST(ResponsesRequest, MakesOneSystemMessage) {
  EXPECT_EQ(conversation(R"({"role":"developer","content":"D"},{"role":"user","content":"u"},)"
                         R"({"role":"system","content":"S"})",
                         R"(,"instructions":"I")"),
            R"([{"role":"system","content":"I\n\nD\n\nS"},{"role":"user","content":"u"}])");
  EXPECT_EQ(conversation(R"({"role":"user","content":"u"})", R"(,"instructions":"")"),
            R"([{"role":"user","content":"u"}])");
}

TEST(ResponsesRequest, PutsAnAnswersItemsTogether) {
  const std::string call =
      R"({"type":"function_call","call_id":"1","name":"f","arguments":"{\"a\":1}"})";
  const std::string result = R"({"type":"function_call_output","call_id":"1","output":"r"})";
  const std::string tool = R"({"role":"tool","content":"r","tool_call_id":"1"})";
  const std::string made =
      R"("tool_calls":[{"id":"1","type":"function","function":{"name":"f","arguments":{"a":1}}}])";
  const std::string user = R"({"role":"user","content":"u"})";
  EXPECT_EQ(conversation(user +
                         R"(,{"type":"reasoning","id":"rs","summary":[],"content":[)"
                         R"({"type":"reasoning_text","text":"t"}]},)"
                         R"({"role":"assistant","content":"x"},)" +
                         call + "," + result),
            "[" + user + R"(,{"role":"assistant","content":"x","reasoning_content":"t",)" + made +
                "}," + tool + "]");
  // A call alone; a call after its predecessor's result; texts that follow each other.
  EXPECT_EQ(conversation(user + "," + call + "," + result + "," + call),
            "[" + user + R"(,{"role":"assistant","content":"",)" + made + "}," + tool +
                R"(,{"role":"assistant","content":"",)" + made + "}]");
  EXPECT_EQ(
      conversation(user +
                   R"(,{"role":"assistant","content":"a"},{"role":"assistant","content":"b"})"),
      "[" + user + R"(,{"role":"assistant","content":"a"},{"role":"assistant","content":"b"}])");
  // The summary where there is no text; nothing where there is neither.
  EXPECT_EQ(conversation(user +
                         R"(,{"type":"reasoning","summary":[{"type":"summary_text","text":"s"}]},)"
                         R"({"role":"assistant","content":"a"},{"type":"reasoning","summary":[]})"),
            "[" + user + R"(,{"role":"assistant","content":"a","reasoning_content":"s"}])");
  EXPECT_EQ(conversation(user + "," + call +
                         R"(,{"type":"function_call_output","call_id":"1","output":)"
                         R"([{"type":"input_text","text":"r"}]})"),
            "[" + user + R"(,{"role":"assistant","content":"",)" + made + "}," + tool + "]");
}

TEST(ResponsesRequest, ReadsToolsAndHowToChoose) {
  const std::string tools =
      R"("input":"hi","tools":[{"type":"function","name":"f","description":"d","strict":null,)"
      R"("parameters":{"type":"object","properties":{"n":{"type":"integer"}}}}])";
  const ResponsesRequest request = good(tools);
  EXPECT_EQ(request.chat.chat.tools.dump(),
            R"([{"type":"function","function":{"name":"f","description":"d","parameters":)"
            R"({"type":"object","properties":{"n":{"type":"integer"}}}}}])");
  EXPECT_EQ(request.chat.tools->types("f", "n"), TypeSet(TypeSet::kInteger));
  EXPECT_EQ(good(tools + R"(,"tool_choice":"none")").chat.tool_choice, ToolChoice::kNone);
  EXPECT_FALSE(good(tools + R"(,"parallel_tool_calls":false)").chat.parallel_tool_calls);
  EXPECT_EQ(good(R"("input":"hi","tools":[],"tool_choice":"auto")").chat.tools, nullptr);
  for (const auto& [choice, field] : std::vector<std::pair<std::string, std::string>>{
           {R"({"type":"function"})", "tool_choice.name"},
           {R"({"type":"function","name":"g"})", "tool_choice.name"},
           {R"({"type":"file_search"})", "tool_choice.type"},
           {R"("maybe")", "tool_choice"},
           {R"(5)", "tool_choice"}})
    EXPECT_EQ(refused(tools + ",\"tool_choice\":" + choice), field) << choice;
}

TEST(ResponsesRequest, RepeatsWhatItWasAsked) {
  const ResponsesRequest request = good(
      R"("input":"hi","instructions":"I","temperature":0.5,"max_output_tokens":7,"store":true,)"
      R"("metadata":{"k":"v"},"reasoning":{"effort":"low"},"user":"u","stream":true,"odd":1)");
  EXPECT_EQ(request.chat.generation.max_tokens, 7);
  EXPECT_EQ(request.chat.generation.sampling.temperature, 0.5f);
  EXPECT_EQ(request.chat.thinking.effort, "low");
  EXPECT_TRUE(request.chat.generation.stream);
  EXPECT_THAT(request.chat.unread, ElementsAre("odd"));
  EXPECT_EQ(request.echo.find("instructions")->as_string(), "I");
  EXPECT_EQ(request.echo.find("max_output_tokens")->as_integer(), 7);
  EXPECT_EQ(request.echo.find("metadata")->dump(), R"({"k":"v"})");
  EXPECT_EQ(request.echo.find("temperature")->as_double(), 0.5);
  EXPECT_EQ(request.echo.find("reasoning")->dump(), R"({"effort":"low","summary":null})");
  EXPECT_FALSE(request.echo.find("store")->as_bool());  // nothing is
  EXPECT_EQ(request.echo.find("tools")->dump(), "[]");
}

TEST(ResponsesRequest, NamesTheBadField) {
  const std::string hi = "\"input\":\"hi\"";
  for (const auto& [members, field] : std::vector<std::pair<std::string, std::string>>{
           {"\"x\":1", "input"},
           {"\"input\":[]", "input"},
           {"\"input\":5", "input"},
           {"\"input\":[5]", "input[0]"},
           {R"("input":[{"content":"a"}])", "input[0].role"},
           {R"("input":[{"role":"wizard","content":"a"}])", "input[0].role"},
           {R"("input":[{"role":"user"}])", "input[0].content"},
           {R"("input":[{"role":"user","content":5}])", "input[0].content"},
           {R"("input":[{"role":"user","content":[5]}])", "input[0].content[0]"},
           {R"("input":[{"role":"user","content":[{}]}])", "input[0].content[0].type"},
           {R"("input":[{"role":"user","content":[{"type":"input_text"}]}])",
            "input[0].content[0].text"},
           {R"("input":[{"role":"user","content":[{"type":"input_file"}]}])",
            "input[0].content[0]"},
           {R"("input":[{"type":"item_reference","id":"x"}])", "input[0].type"},
           {R"("input":[{"type":"web_search_call"}])", "input[0].type"},
           {R"("input":[{"type":"function_call","name":"f"}])", "input[0].call_id"},
           {R"("input":[{"type":"function_call","call_id":"1"}])", "input[0].name"},
           {R"("input":[{"type":"function_call_output","output":"1"}])", "input[0].call_id"},
           {R"("input":[{"type":"function_call_output","call_id":"1"}])", "input[0].output"},
           {hi + R"(,"instructions":5)", "instructions"},
           {hi + R"(,"max_output_tokens":0)", "max_output_tokens"},
           {hi + R"(,"n":2)", "n"},
           {hi + R"(,"previous_response_id":"resp_1")", "previous_response_id"},
           {hi + R"(,"background":true)", "background"},
           {hi + R"(,"conversation":"c")", "conversation"},
           {hi + R"(,"top_logprobs":2)", "top_logprobs"},
           {hi + R"(,"text":{"format":{"type":"json_schema"}})", "text.format"},
           {hi + R"(,"reasoning":{"effort":1})", "reasoning.effort"},
           {hi + R"(,"tools":{})", "tools"},
           {hi + R"(,"tools":[{"type":"web_search"}])", "tools[0].type"},
           {hi + R"(,"tools":[{"type":"function"}])", "tools[0].name"},
           {hi + R"(,"tool_choice":"required")", "tool_choice"}})
    EXPECT_EQ(refused(members), field) << members;
}

}  // namespace
}  // namespace pewter::server
