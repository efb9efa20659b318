// `pewter parse`: what the API would make of a text.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/file.h"
#include "base/json.h"
#include "program.h"

namespace pewter::cli_test {
namespace {

using testing::HasSubstr;
using testing::IsEmpty;

const std::string kTools = std::string(PEWTER_SOURCE_DIR) + "/tools/demo_tools.json";
const std::string kCall =
    "<tool_call>\n<function=get_weather>\n<parameter=city>\nUlm\n</parameter>\n</function>\n"
    "</tool_call>";

ProgramResult parse(std::vector<std::string> more, const std::string& text) {
  more.insert(more.begin(), "parse");
  return run_program(more, text);
}

Json message(const std::vector<std::string>& more, const std::string& text) {
  const ProgramResult result = parse(more, text);
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_THAT(result.err, IsEmpty());
  return Json::parse(result.out).value();
}

TEST(Parse, WritesTheMessage) {
  const Json choice = message({"--tools", kTools, "--thinking"}, "Ask.\n</think>\n\n" + kCall);
  EXPECT_EQ(choice.find("finish_reason")->as_string(), "tool_calls");
  const Json& said = *choice.find("message");
  EXPECT_EQ(said.find("reasoning")->as_string(), "Ask.");
  EXPECT_TRUE(said.find("content")->is_null());
  const Json& call = said.find("tool_calls")->as_array().at(0);
  EXPECT_EQ(call.find("function")->dump(),
            R"({"name":"get_weather","arguments":"{\"city\": \"Ulm\"}"})");
  EXPECT_THAT(call.find("id")->as_string(), testing::StartsWith("call_"));
}

TEST(Parse, KnowsTheChoices) {
  const auto reason = [](const std::vector<std::string>& more) {
    std::vector<std::string> all = {"--tools", kTools};
    all.insert(all.end(), more.begin(), more.end());
    return message(all, kCall + "\n" + kCall).find("finish_reason")->as_string();
  };
  EXPECT_EQ(reason({}), "tool_calls");
  EXPECT_EQ(reason({"--tool-choice", "required"}), "tool_calls");
  EXPECT_EQ(reason({"--tool-choice", "get_weather"}), "stop");
  EXPECT_EQ(reason({"--tool-choice", "none", "--end", "length"}), "length");
  EXPECT_EQ(message({}, kCall).find("message")->find("content")->as_string(), kCall);
  EXPECT_EQ(message({"--tools", kTools, "--one-call"}, kCall + kCall)
                .find("message")
                ->find("tool_calls")
                ->as_array()
                .size(),
            1u);
}

TEST(Parse, WritesDeltas) {
  const ProgramResult result = parse({"--tools", kTools, "--chunk", "1"}, "Gärten. " + kCall);
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_THAT(result.out, HasSubstr("{\"delta\":{\"content\":\"ä\"}}\n"));
  EXPECT_THAT(result.out, HasSubstr("\"name\":\"get_weather\",\"arguments\":\"\"}}]}}\n"));
  EXPECT_THAT(result.out,
              HasSubstr("{\"delta\":{\"tool_calls\":[{\"index\":0,\"function\":{\"arguments\":"
                        "\"l\"}}]}}\n"));
  EXPECT_THAT(result.out, testing::EndsWith("{\"delta\":{},\"finish_reason\":\"tool_calls\"}\n"));
}

TEST(Parse, SaysWhatIsWrong) {
  EXPECT_EQ(parse({"--end", "soon"}, "").exit_code, 2);
  EXPECT_EQ(parse({"--chunk", "0"}, "").exit_code, 2);
  EXPECT_EQ(parse({"--tool-choice", "f"}, "").exit_code, 2);
  const ProgramResult unknown = parse({"--tools", kTools, "--tool-choice", "f"}, "");
  EXPECT_EQ(unknown.exit_code, 1);
  EXPECT_THAT(unknown.err, HasSubstr("--tool-choice"));
  const ProgramResult missing = parse({"--tools", "/none.json"}, "");
  EXPECT_EQ(missing.exit_code, 1);
  EXPECT_THAT(missing.err, HasSubstr("/none.json"));
}

}  // namespace
}  // namespace pewter::cli_test
