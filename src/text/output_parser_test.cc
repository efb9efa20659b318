// The cases of tests/cli/fixtures/reasoning.json, however the text is cut, and which prompts open
// the reasoning.
#include "text/output_parser.h"

#include <gtest/gtest.h>

#include "base/file.h"
#include "base/json.h"

namespace pewter {
namespace {

// What the parser makes of text that arrives cut at these places.
OutputDelta parse(bool in_reasoning, std::string_view text, const std::vector<size_t>& cuts) {
  OutputParser parser(in_reasoning);
  OutputDelta all;
  const auto add = [&all](const OutputDelta& delta) {
    all.reasoning += delta.reasoning;
    all.answer += delta.answer;
  };
  size_t begin = 0;
  for (const size_t cut : cuts) {
    add(parser.push(text.substr(begin, cut - begin)));
    begin = cut;
  }
  add(parser.push(text.substr(begin)));
  add(parser.finish());
  return all;
}

std::string field(const Json& object, std::string_view key) {
  return object.find(key)->as_string();
}

TEST(OutputParser, SplitsEveryCaseHoweverItIsCut) {
  const std::string text =
      read_file(std::string(PEWTER_SOURCE_DIR) + "/tests/cli/fixtures/reasoning.json").value();
  const Json file = Json::parse(text).value();
  const Json::Array& cases = file.find("cases")->as_array();
  ASSERT_GT(cases.size(), 20u);
  for (const Json& one : cases) {
    SCOPED_TRACE(field(one, "id"));
    const std::string generated = field(one, "text");
    const bool in_reasoning = opens_reasoning(field(one, "prompt"), {});
    const auto expect = [&](const std::vector<size_t>& cuts) {
      const OutputDelta delta = parse(in_reasoning, generated, cuts);
      EXPECT_EQ(delta.reasoning, field(one, "reasoning"));
      EXPECT_EQ(delta.answer, field(one, "answer"));
    };
    expect({});
    std::vector<size_t> everywhere;
    for (size_t cut = 0; cut <= generated.size(); ++cut) {
      expect({cut});
      everywhere.push_back(cut);
    }
    expect(everywhere);
  }
}

TEST(OutputParser, GivesTextOutAsSoonAsItIsCertain) {
  OutputParser parser(true);
  EXPECT_EQ(parser.push("abc").reasoning, "abc");
  EXPECT_EQ(parser.push(" d \n").reasoning, " d");
  EXPECT_EQ(parser.push("</").reasoning, "");
  EXPECT_EQ(parser.push("x").reasoning, " \n</x");
  EXPECT_TRUE(parser.in_reasoning());
  EXPECT_EQ(parser.push("</think>").reasoning, "");
  EXPECT_FALSE(parser.in_reasoning());
  EXPECT_EQ(parser.push("\n\nYes").answer, "Yes");
  EXPECT_EQ(parser.push(" <").answer, " <");
}

TEST(OpensReasoning, LooksForTheLastTag) {
  EXPECT_TRUE(opens_reasoning("<think>\n", {}));
  EXPECT_TRUE(opens_reasoning("<think>a</think>b<think>", {}));
  EXPECT_FALSE(opens_reasoning("<think>\n\n</think>\n\n", {}));
  EXPECT_FALSE(opens_reasoning("", {}));
  EXPECT_FALSE(opens_reasoning("</think>", {}));
}

TEST(OpensReasoning, DoesNotHeedTagsOfTheUser) {
  const std::string prompt = "user: what is <think>?\nassistant: ";
  const std::vector<ByteRange> foreign = {{6, 22}};
  EXPECT_FALSE(opens_reasoning(prompt, foreign));
  EXPECT_TRUE(opens_reasoning(prompt + "<think>", foreign));
  // A tag that the user's text completes is not the template's either.
  EXPECT_FALSE(opens_reasoning("<think>", std::vector<ByteRange>{{3, 5}}));
  const std::string closes = "<think>\n</think> says the user";
  EXPECT_TRUE(opens_reasoning(closes, std::vector<ByteRange>{{8, closes.size()}}));
}

}  // namespace
}  // namespace pewter
