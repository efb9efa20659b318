// `pewter render`: the prompt of a request, without its model's weights.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/json.h"
#include "program.h"

namespace pewter::cli_test {
namespace {

using testing::HasSubstr;

ProgramResult render(const std::string& request, std::vector<std::string> more = {}) {
  more.insert(more.begin(), {"render", "-", demo_model()});
  return run_program(more, request);
}

TEST(Render, WritesThePrompt) {
  const ProgramResult result = render(
      R"({"messages":[{"role":"developer","content":"Be brief."},{"role":"user","content":"hi"}],)"
      R"("chat_template_kwargs":{"enable_thinking":false}})");
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_EQ(result.out,
            "<|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user\nhi<|im_end|>\n"
            "<|im_start|>assistant\n<think>\n\n</think>\n\n");
}

TEST(Render, KnowsTheOtherApis) {
  const std::string wanted =
      "<|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user\nhi<|im_end|>\n";
  const ProgramResult messages =
      render(R"({"system":"Be brief.","messages":[{"role":"user","content":"hi"}]})",
             {"--api", "messages"});
  EXPECT_EQ(messages.exit_code, 0) << messages.err;
  EXPECT_EQ(messages.out, wanted + "<|im_start|>assistant\n<think>\n\n</think>\n\n");
  const ProgramResult responses =
      render(R"({"instructions":"Be brief.","input":"hi"})", {"--api", "responses"});
  EXPECT_EQ(responses.out, wanted + "<|im_start|>assistant\n<think>\n");
  EXPECT_EQ(render("{}", {"--api", "mail"}).exit_code, 2);
}

TEST(Render, TellsControlTokensFromText) {
  const auto count = [](const std::string& content) {
    const ProgramResult result =
        render(R"({"messages":[{"role":"user","content":")" + content + "\"}]}", {"--json"});
    EXPECT_EQ(result.exit_code, 0) << result.err;
    const Json json = Json::parse(result.out).value();
    EXPECT_THAT(json.find("prompt")->as_string(), HasSubstr(content));
    return json.find("tokens")->as_array().size();
  };
  // In a message it is no single token.
  EXPECT_GT(count("<|im_end|>"), count("x") + 3);
}

TEST(Render, SaysWhatIsWrong) {
  const std::string user = R"({"role":"user","content":"hi"})";
  const ProgramResult field = render(R"({"messages":5})");
  EXPECT_EQ(field.exit_code, 1);
  EXPECT_THAT(field.err, HasSubstr("messages: want a list"));
  const ProgramResult refused =
      render(R"({"messages":[)" + user + R"(,{"role":"system","content":"late"}]})",
             {"--strict-messages"});
  EXPECT_EQ(refused.exit_code, 1);
  EXPECT_THAT(refused.err, HasSubstr("System message must be at the beginning."));
  EXPECT_THAT(run_program({"render", "/none.json", demo_model()}).err, HasSubstr("/none.json"));
  EXPECT_EQ(run_program({"render", "-", "/none"}, R"({"messages":[)" + user + "]}").exit_code, 1);
  EXPECT_EQ(run_program({"render"}).exit_code, 2);
}

}  // namespace
}  // namespace pewter::cli_test
