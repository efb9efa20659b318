#include "text/chat_template.h"

#include <gtest/gtest.h>

#include "base/file.h"

namespace pewter {
namespace {

TEST(ChatTemplate, DemoTemplate) {
  const std::string path = std::string(PEWTER_SOURCE_DIR) + "/models/demo/chat_template.jinja";
  auto parsed = ChatTemplate::parse(read_file(path).value());
  ASSERT_TRUE(parsed.has_value()) << parsed.error().message;
  ChatTemplateInput input;
  input.messages = Json::parse(R"([{"role":"user","content":"  Name a river. \n"}])").value();
  const auto prompt = parsed->render(input);
  ASSERT_TRUE(prompt.has_value()) << prompt.error().message;
  EXPECT_EQ(prompt->text,
            "<|im_start|>user\nName a river.<|im_end|>\n<|im_start|>assistant\n<think>\n");
}

}  // namespace
}  // namespace pewter
