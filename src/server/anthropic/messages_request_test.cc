// Anthropic's requests as the chats they become, and which field is named when they cannot.
#include "server/anthropic/messages_request.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace pewter::server {
namespace {

using testing::ElementsAre;

const std::string kHello = R"("messages":[{"role":"user","content":"hi"}])";

Result<ChatRequest> parse(const std::string& members, std::optional<bool> thinks = false) {
  return parse_messages_request("{\"max_tokens\":9," + members + "}", {.thinks = thinks});
}
ChatRequest good(const std::string& members, std::optional<bool> thinks = false) {
  Result<ChatRequest> request = parse(members, thinks);
  EXPECT_TRUE(request) << request.error().message << " in " << members;
  return request ? *std::move(request) : ChatRequest{};
}
// The messages that a conversation becomes.
std::string conversation(const std::string& messages, const std::string& more = "") {
  return good("\"messages\":[" + messages + "]" + more).chat.messages.dump();
}
// The field that is named when it is refused.
std::string refused(const std::string& members) {
  const Result<ChatRequest> request = parse(members);
  return request ? "accepted" : std::string(field_of(request.error().message));
}
std::string refused_block(const std::string& role, const std::string& block) {
  return refused(str_cat(R"("messages":[{"role":"user","content":"a"},{"role":")", role,
                         R"(","content":[)", block, "]}]"));
}

TEST(MessagesRequest, ReadsTexts) {
  EXPECT_EQ(conversation(R"({"role":"user","content":"a"},{"role":"assistant","content":"b"},)"
                         R"({"role":"user","content":[{"type":"text","text":"c"},)"
                         R"({"type":"text","text":"d","cache_control":{"type":"ephemeral"}}]})"),
            R"([{"role":"user","content":"a"},{"role":"assistant","content":"b"},)"
            R"({"role":"user","content":"cd"}])");
  EXPECT_EQ(conversation(R"({"role":"user","content":[{"type":"document","source":)"
                         R"({"type":"text","media_type":"text/plain","data":"D"}},)"
                         R"({"type":"text","text":"?"}]})"),
            R"([{"role":"user","content":"D?"}])");
}

TEST(MessagesRequest, PutsTheSystemInFront) {
  const auto system = [](const std::string& text) {
    const Json messages =
        Json::parse(conversation(R"({"role":"user","content":"u"})", ",\"system\":" + text))
            .value();
    const Json& first = messages.as_array().front();
    return first.find("role")->as_string() == "system" ? first.find("content")->as_string()
                                                       : "none";
  };
  EXPECT_EQ(system(R"("s")"), "s");
  EXPECT_EQ(system(R"([{"type":"text","text":"s"},{"type":"text","text":"t"}])"), "s\n\nt");
  EXPECT_EQ(system(R"([{"type":"text","text":"x-anthropic-billing-header: cch=1;"},)"
                   R"({"type":"text","text":"t"}])"),
            "t");
  for (const char* nothing : {"\"\"", "[]", "null", R"("x-anthropic-billing-header: cch=1;")"})
    EXPECT_EQ(system(nothing), "none") << nothing;
  EXPECT_EQ(conversation(R"({"role":"user","content":"u"},{"role":"system","content":"late"})",
                         R"(,"system":"s")"),
            R"([{"role":"system","content":"s\n\nlate"},{"role":"user","content":"u"}])");
}

TEST(MessagesRequest, KeepsCallsResultsAndThoughtsInOrder) {
  EXPECT_EQ(
      conversation(
          R"({"role":"user","content":"u"},{"role":"assistant","content":[)"
          R"({"type":"thinking","thinking":"t","signature":"x"},{"type":"redacted_thinking","data":"y"},)"
          R"({"type":"text","text":"a"},{"type":"tool_use","id":"1","name":"f","input":{"z":1,"b":[2]}},)"
          R"({"type":"tool_use","id":"2","name":"g"}]},)"
          R"({"role":"user","content":[{"type":"tool_result","tool_use_id":"1","content":"r"},)"
          R"({"type":"tool_result","tool_use_id":"2","is_error":true,"content":)"
          R"([{"type":"text","text":"s"},{"type":"text","text":"t"}]},)"
          R"({"type":"text","text":"and now?"}]})"),
      R"([{"role":"user","content":"u"},{"role":"assistant","content":"a","reasoning_content":"t",)"
      R"("tool_calls":[{"id":"1","type":"function","function":{"name":"f","arguments":{"z":1,"b":[2]}}},)"
      R"({"id":"2","type":"function","function":{"name":"g","arguments":{}}}]},)"
      R"({"role":"tool","content":"r","tool_call_id":"1"},)"
      R"({"role":"tool","content":"s\nt","tool_call_id":"2"},{"role":"user","content":"and now?"}])");
  // A result without content, and input that is no object: a model's own mistake.
  EXPECT_EQ(
      conversation(R"({"role":"user","content":"u"},{"role":"assistant","content":[)"
                   R"({"type":"tool_use","id":"1","name":"f","input":"x"}]},)"
                   R"({"role":"user","content":[{"type":"tool_result","tool_use_id":"1"}]})"),
      R"([{"role":"user","content":"u"},{"role":"assistant","content":"","tool_calls":)"
      R"([{"id":"1","type":"function","function":{"name":"f","arguments":{"arguments":"x"}}}]},)"
      R"({"role":"tool","content":"","tool_call_id":"1"}])");
}

TEST(MessagesRequest, GoesOnWithALastTextOfTheAssistant) {
  const auto goes_on = [](const std::string& content) {
    const ChatRequest request =
        good(R"("messages":[{"role":"user","content":"u"},{"role":"assistant","content":)" +
             content + "}]");
    EXPECT_NE(request.chat.continue_final_message, request.chat.add_generation_prompt);
    return request.chat.continue_final_message;
  };
  EXPECT_TRUE(goes_on(R"("The")"));
  EXPECT_FALSE(goes_on(R"(" ")"));
  EXPECT_FALSE(goes_on(R"([{"type":"text","text":"a"},{"type":"tool_use","id":"1","name":"f"}])"));
  EXPECT_FALSE(good(kHello).chat.continue_final_message);
}

TEST(MessagesRequest, ReadsToolsAndHowToChoose) {
  const std::string tools =
      kHello + R"(,"tools":[{"name":"f","description":"d","input_schema":{"type":"object",)"
               R"("properties":{"n":{"type":"integer"}}},"cache_control":{"type":"ephemeral"}}])";
  const ChatRequest request = good(tools);
  EXPECT_EQ(request.chat.tools.dump(),
            R"([{"type":"function","function":{"name":"f","description":"d","parameters":)"
            R"({"type":"object","properties":{"n":{"type":"integer"}}}}}])");
  EXPECT_EQ(request.tools->types("f", "n"), TypeSet(TypeSet::kInteger));
  EXPECT_TRUE(request.parallel_tool_calls);
  EXPECT_EQ(good(tools + R"(,"tool_choice":{"type":"none"})").tool_choice, ToolChoice::kNone);
  EXPECT_FALSE(good(tools + R"(,"tool_choice":{"type":"auto","disable_parallel_tool_use":true})")
                   .parallel_tool_calls);
  for (const auto& [choice, field] : std::vector<std::pair<std::string, std::string>>{
           {R"({"type":"tool"})", "tool_choice.name"},
           {R"({"type":"tool","name":"g"})", "tool_choice.name"},
           {R"({"type":"some"})", "tool_choice.type"},
           {R"({})", "tool_choice.type"},
           {R"("auto")", "tool_choice"}})
    EXPECT_EQ(refused(tools + ",\"tool_choice\":" + choice), field) << choice;
  EXPECT_EQ(refused(kHello + R"(,"tool_choice":{"type":"auto"})"), "tool_choice");
}

TEST(MessagesRequest, ReadsHowToGenerate) {
  const ChatRequest request =
      good(kHello +
           R"(,"model":"m","stream":true,"temperature":0.5,"top_p":0.9,"top_k":7,"seed":3,)"
           R"("stop_sequences":["a",""],"metadata":{"user_id":"u"},"service_tier":"auto","odd":1)");
  const GenerationFields& fields = request.generation;
  EXPECT_EQ(fields.model, "m");
  EXPECT_EQ(fields.max_tokens, 9);
  EXPECT_TRUE(fields.stream);
  EXPECT_EQ(fields.sampling.temperature, 0.5f);
  EXPECT_EQ(fields.sampling.top_p, 0.9f);
  EXPECT_EQ(fields.sampling.top_k, 7);
  EXPECT_THAT(fields.stops, ElementsAre("a"));
  EXPECT_THAT(request.unread, ElementsAre("odd"));
}

TEST(MessagesRequest, ThinksWhereItIsAsked) {
  const auto thinks = [](const std::string& more, std::optional<bool> otherwise = false) {
    const Json kwargs = good(kHello + more, otherwise).chat.template_kwargs;
    const Json* enable = kwargs.find("enable_thinking");
    return enable == nullptr ? "open" : enable->dump();
  };
  EXPECT_EQ(thinks(""), "false");
  EXPECT_EQ(thinks("", std::nullopt), "open");
  EXPECT_EQ(thinks(R"(,"thinking":{"type":"enabled","budget_tokens":5})"), "true");
  EXPECT_EQ(thinks(R"(,"thinking":{"type":"adaptive"})"), "true");
  EXPECT_EQ(thinks(R"(,"thinking":{"type":"disabled"})"), "false");
  EXPECT_EQ(thinks(R"(,"chat_template_kwargs":{"enable_thinking":true})"), "true");
  EXPECT_EQ(good(kHello + R"(,"thinking":{"type":"enabled","budget_tokens":5})").thinking.budget,
            5);
  EXPECT_EQ(good(kHello + R"(,"output_config":{"effort":"low"})").thinking.effort, "low");
}

TEST(MessagesRequest, NamesTheBadField) {
  for (const auto& [members, field] : std::vector<std::pair<std::string, std::string>>{
           {"\"x\":1", "messages"},
           {"\"messages\":[]", "messages"},
           {"\"messages\":5", "messages"},
           {"\"messages\":[5]", "messages[0]"},
           {R"("messages":[{"content":"a"}])", "messages[0].role"},
           {R"("messages":[{"role":"tool","content":"a"}])", "messages[0].role"},
           {R"("messages":[{"role":"user"}])", "messages[0].content"},
           {R"("messages":[{"role":"user","content":5}])", "messages[0].content"},
           {kHello + R"(,"system":5)", "system"},
           {kHello + R"(,"system":[{"type":"image"}])", "system[0]"},
           {kHello + R"(,"stop_sequences":[1])", "stop_sequences[0]"},
           {kHello + R"(,"max_tokens":0)", "max_tokens"},
           {kHello + R"(,"n":2)", "n"},
           {kHello + R"(,"tools":{})", "tools"},
           {kHello + R"(,"tools":[{"input_schema":{}}])", "tools[0].name"},
           {kHello + R"(,"tools":[{"name":"f"}])", "tools[0].input_schema"},
           {kHello + R"(,"tools":[{"name":"f","input_schema":5}])", "tools[0].input_schema"},
           {kHello + R"(,"tools":[{"name":"f","type":"web_search_20250305"}])", "tools[0].type"},
           {kHello + R"(,"thinking":{"type":"deep"})", "thinking.type"},
           {kHello + R"(,"thinking":{"type":"enabled","budget_tokens":-5})",
            "thinking.budget_tokens"},
           {kHello + R"(,"thinking":true)", "thinking"},
           {kHello + R"(,"output_config":{"format":{"type":"json_schema"}})",
            "output_config.format"},
           {kHello + R"(,"mcp_servers":[{}])", "mcp_servers"}})
    EXPECT_EQ(refused(members), field) << members;
  const std::string place = "messages[1].content[0]";
  for (const auto& [block, field] : std::vector<std::pair<std::string, std::string>>{
           {"5", ""},
           {"{}", ".type"},
           {R"({"type":"text"})", ".text"},
           {R"({"type":"text","text":5})", ".text"},
           {R"({"type":"image","source":{}})", ""},
           {R"({"type":"document"})", ".source"},
           {R"({"type":"document","source":{"type":"base64"}})", ""},
           {R"({"type":"hologram"})", ".type"}})
    for (const char* role : {"user", "assistant"})
      EXPECT_EQ(refused_block(role, block), place + field) << block;
  EXPECT_EQ(refused_block("user", R"({"type":"tool_result"})"), place + ".tool_use_id");
  EXPECT_EQ(refused_block(
                "user", R"({"type":"tool_result","tool_use_id":"1","content":[{"type":"image"}]})"),
            place + ".content[0]");
  EXPECT_EQ(refused_block("assistant", R"({"type":"tool_use","id":"1"})"), place + ".name");
  EXPECT_EQ(refused_block("assistant", R"({"type":"thinking"})"), place + ".thinking");
}

}  // namespace
}  // namespace pewter::server
