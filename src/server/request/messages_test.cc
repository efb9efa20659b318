// Conversations as clients send them, and as templates want them.
#include "server/request/messages.h"

#include <gtest/gtest.h>

#include <cstdlib>

#include "base/file.h"
#include "server/request/errors.h"
#include "text/chat_template.h"

namespace pewter::server {
namespace {

// Normalised, as JSON text; or the field an error names, behind an exclamation mark.
std::string normal(const std::string& messages, bool strict = false) {
  const Result<Json> result = normalise_messages(Json::parse(messages).value(), {.strict = strict});
  return result ? result->dump() : str_cat("!", field_of(result.error().message));
}

TEST(Messages, LeavesOrdinaryOnesAlone) {
  const std::string plain =
      R"([{"role":"system","content":"s"},{"role":"user","content":"u","name":"n"},)"
      R"({"role":"assistant","content":"a"},{"role":"tool","content":"t","tool_call_id":"c"}])";
  EXPECT_EQ(normal(plain), plain);
}

TEST(Messages, MergesSystemMessages) {
  EXPECT_EQ(normal(R"([{"role":"system","content":"A"},{"role":"developer","content":"B"},)"
                   R"({"role":"user","content":"hi"},{"role":"system","content":"C"}])"),
            R"([{"role":"system","content":"A\n\nB\n\nC"},{"role":"user","content":"hi"}])");
  EXPECT_EQ(normal(R"([{"role":"user","content":"u"},{"role":"developer","content":"B"}])"),
            R"([{"role":"system","content":"B"},{"role":"user","content":"u"}])");
  EXPECT_EQ(normal(R"([{"role":"user","content":"u"},{"role":"developer","content":"B"}])", true),
            R"([{"role":"user","content":"u"},{"role":"system","content":"B"}])");
}

TEST(Messages, JoinsTextParts) {
  EXPECT_EQ(normal(R"([{"role":"user","content":[{"type":"text","text":"a "},"b",)"
                   R"({"type":"input_text","text":" c"},{"text":" d"},)"
                   R"({"type":"refusal","refusal":" e"}]}])"),
            R"([{"role":"user","content":"a b c d e"}])");
  EXPECT_EQ(normal(R"([{"role":"user","content":null}])"), R"([{"role":"user","content":""}])");
}

TEST(Messages, RefusesWhatIsNoText) {
  for (const char* part :
       {R"({"type":"image_url","image_url":{"url":"x"}})", R"({"type":"video_url"})",
        R"({"type":"input_audio","input_audio":{}})", R"({"image":"x"})", R"({"type":"file"})",
        R"({"type":"hologram","text":"x"})"})
    EXPECT_EQ(
        normal(str_cat(R"([{"role":"user","content":[{"type":"text","text":"a"},)", part, "]}]")),
        "!messages[0].content[1]");
}

TEST(Messages, NamesWhatIsWrong) {
  EXPECT_EQ(normal("[]"), "!messages");
  EXPECT_EQ(normal("{}"), "!messages");
  EXPECT_EQ(normal("[5]"), "!messages[0]");
  EXPECT_EQ(normal("[{}]"), "!messages[0].role");
  EXPECT_EQ(normal(R"([{"role":"user"}])"), "!messages[0].content");
  EXPECT_EQ(normal(R"([{"role":"wizard","content":"x"}])"), "!messages[0].role");
  EXPECT_EQ(normal(R"([{"role":5,"content":"x"}])"), "!messages[0].role");
  EXPECT_EQ(normal(R"([{"role":"user","content":5}])"), "!messages[0].content");
  EXPECT_EQ(normal(R"([{"role":"user","content":[{"type":"text"}]}])"),
            "!messages[0].content[0].text");
  EXPECT_EQ(normal(R"([{"role":"assistant","reasoning":5}])"), "!messages[0].reasoning");
  EXPECT_EQ(normal(R"([{"role":"assistant","tool_calls":5}])"), "!messages[0].tool_calls");
  EXPECT_EQ(normal(R"([{"role":"assistant","tool_calls":[{"function":{}}]}])"),
            "!messages[0].tool_calls[0].function.name");
}

TEST(Messages, TakesReasoningByEitherName) {
  EXPECT_EQ(normal(R"([{"role":"assistant","content":"a","reasoning":"r"}])"),
            R"([{"role":"assistant","content":"a","reasoning_content":"r"}])");
  EXPECT_EQ(
      normal(R"([{"role":"assistant","content":"a","reasoning_content":"c","reasoning":"r"}])"),
      R"([{"role":"assistant","content":"a","reasoning_content":"c"}])");
}

TEST(Messages, ParsesArgumentsAndNeverFails) {
  const auto arguments = [](const std::string& given) {
    const Json messages =
        Json::parse(
            normal(str_cat(
                R"([{"role":"assistant","content":null,"tool_calls":[{"id":"c","type":"function",)"
                R"("function":{"name":"f","arguments":)",
                given, "}}]}]")))
            .value();
    return messages.as_array()[0]
        .find("tool_calls")
        ->as_array()[0]
        .find("function")
        ->find("arguments")
        ->dump();
  };
  EXPECT_EQ(arguments(R"("{\"z\": 1, \"a\": 2.0}")"), R"({"z":1,"a":2.0})");
  EXPECT_EQ(arguments(R"({"z":1})"), R"({"z":1})");
  for (const char* nothing : {"null", "\"\"", "\" \"", "\"null\""})
    EXPECT_EQ(arguments(nothing), "{}") << nothing;
  EXPECT_EQ(arguments(R"("not json")"), R"({"arguments":"not json"})");
  EXPECT_EQ(arguments(R"("[1]")"), R"({"arguments":"[1]"})");
}

TEST(Messages, UnderstandsTheOldSpelling) {
  EXPECT_EQ(normal(R"([{"role":"assistant","content":null,"function_call":{"name":"f",)"
                   R"("arguments":"{}"}},{"role":"function","name":"f","content":"1"}])"),
            R"([{"role":"assistant","content":"","tool_calls":[{"type":"function","function":)"
            R"({"name":"f","arguments":{}}}]},{"role":"tool","content":"1","name":"f"}])");
}

TEST(Messages, DropsBillingLines) {
  EXPECT_EQ(normal(R"([{"role":"system","content":[{"type":"text","text":)"
                   R"("x-anthropic-billing-header: v=1;"},{"type":"text","text":"S"}]},)"
                   R"({"role":"user","content":"u"}])"),
            R"([{"role":"system","content":"S"},{"role":"user","content":"u"}])");
  EXPECT_EQ(normal(R"([{"role":"system","content":"x-anthropic-billing-header: v=1;"},)"
                   R"({"role":"user","content":"u"}])"),
            R"([{"role":"user","content":"u"}])");
}

// The recorded prompts, with the template they were recorded with, if both are at hand.
TEST(Messages, BecomeThePromptsOfTheCases) {
  const char* shared = std::getenv("PEWTER_SHARED");
  const std::string folder = shared == nullptr ? "" : shared;
  const Result<std::string> file = read_file(folder + "/cases/templates.json"),
                            source = read_file(folder + "/data/qwen3.5-chat-template.jinja");
  if (!file || !source) GTEST_SKIP() << "no cases: PEWTER_SHARED names no folder with them";
  const ChatTemplate chat_template = ChatTemplate::parse(*source).value();
  int checked = 0;
  const Json cases = Json::parse(*file).value();
  for (const Json& item : cases.find("cases")->as_array()) {
    const Json* text = item.find("expect_text");
    // Pictures are refused here.
    if (text == nullptr || item.find("messages")->dump().find("image") != std::string::npos)
      continue;
    ChatTemplateInput input{.kwargs = *item.find("chat_template_kwargs")};
    input.messages = normalise_messages(*item.find("messages"), {}).value();
    if (const Json* tools = item.find("tools")) input.tools = check_tools(*tools).value();
    input.add_generation_prompt = item.find("add_generation_prompt")->as_bool();
    EXPECT_EQ(chat_template.render(input).value().text, text->as_string())
        << item.find("id")->as_string();
    ++checked;
  }
  EXPECT_GE(checked, 7);
}

}  // namespace
}  // namespace pewter::server
