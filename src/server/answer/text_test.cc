// Stop strings, and the tokens of an answer on their way to reasoning and content.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>

#include "base/file.h"
#include "base/json.h"
#include "server/answer/chat_message.h"
#include "server/answer/choice_text.h"

namespace pewter::server {
namespace {

using testing::IsEmpty;

// Feeds a text in pieces of this many bytes; what came out, and what was found.
std::string run(StopStrings stops, std::string_view text, size_t piece, bool flush = true) {
  std::string out;
  for (size_t at = 0; at < text.size(); at += piece) out += stops.push(text.substr(at, piece));
  if (flush) out += stops.flush();
  return out + (stops.found() ? "|" + *stops.found() : "");
}

TEST(StopStrings, EndTheTextWhereverItIsCut) {
  for (size_t piece = 1; piece < 12; ++piece) {
    EXPECT_EQ(run({{"END"}, false}, "a text ENEND more", piece), "a text EN|END");
    EXPECT_EQ(run({{"END"}, true}, "a text END more", piece), "a text END|END");
    EXPECT_EQ(run({{"END", "xt"}, false}, "a text END more", piece), "a te|xt");
    EXPECT_EQ(run({{"END"}, false}, "a text EN", piece), "a text EN");
    EXPECT_EQ(run({{}, false}, "as it is", piece), "as it is");
    EXPECT_EQ(run({{"é"}, false}, "caf\xc3\xa8 caf\xc3\xa9!", piece), "caf\xc3\xa8 caf|é");
  }
}

TEST(StopStrings, HoldBackWhatCouldBecomeOne) {
  StopStrings stops({"\n\nUser:"}, false);
  EXPECT_EQ(stops.push("Hello.\n"), "Hello.");
  EXPECT_EQ(stops.push("\nUs"), "");
  EXPECT_EQ(stops.push("age"), "\n\nUsage");
  EXPECT_EQ(stops.push("\n"), "");
  EXPECT_EQ(stops.pass("x"), "\nx");
}

TEST(StopStrings, PreferTheEarliestThenTheLongest) {
  EXPECT_EQ(run({{"b", "bcd", "bc"}, false}, "abcd", 9), "a|bcd");
  EXPECT_EQ(run({{"d", "cd"}, false}, "abcd", 9), "ab|cd");
}

class Text : public testing::Test {
 protected:
  static const Tokenizer& tokenizer() {
    static const Tokenizer loaded =
        Tokenizer::load(std::string(PEWTER_SOURCE_DIR) + "/models/demo").value();
    return loaded;
  }
  struct Said {
    std::string reasoning, content;
    std::optional<std::string> stop;
    int64_t tokens = 0, reasoning_tokens = 0;
  };
  // A token for each byte, so that everything is cut everywhere; or the tokens of the text.
  static Said say(const std::string& text, const ChoiceTextOptions& options, bool bytes) {
    ChoiceText choice(tokenizer(), options);
    std::vector<int32_t> ids;
    if (bytes) {
      for (const char c : text) {
        const auto one = tokenizer().encode(std::string(1, c), AddedTokens::kNone).value();
        ids.insert(ids.end(), one.begin(), one.end());
      }
    } else {
      ids = tokenizer().encode(text).value();
    }
    Said said;
    const auto add = [&said](const OutputDelta& delta) {
      said.reasoning += delta.reasoning;
      said.content += delta.answer;
    };
    for (const int32_t id : ids) {
      if (choice.stop_found()) break;
      add(choice.push({.token = id}));
    }
    add(choice.finish(Ending::kStop));
    said.stop = choice.stop_found();
    said.tokens = choice.tokens();
    said.reasoning_tokens = choice.reasoning_tokens();
    return said;
  }
};

TEST_F(Text, PartsReasoningFromContent) {
  for (const bool bytes : {false, true}) {
    const Said said = say("Sum.\n</think>\n\nIt is 12.", {.parser = {.in_reasoning = true}}, bytes);
    EXPECT_EQ(said.reasoning, "Sum.");
    EXPECT_EQ(said.content, "It is 12.");
    EXPECT_GT(said.reasoning_tokens, 0);
    EXPECT_LT(said.reasoning_tokens, said.tokens);
  }
}

TEST_F(Text, StopsCountInTheContentOnly) {
  const std::string text = "say END\n</think>\n\nsay END too";
  for (const bool bytes : {false, true}) {
    const Said content = say(text, {.stops = {"END"}, .parser = {.in_reasoning = true}}, bytes);
    EXPECT_EQ(content.reasoning, "say END");
    EXPECT_EQ(content.content, "say ");
    EXPECT_EQ(content.stop, "END");
    const Said anywhere =
        say(text, {.stops = {"END"}, .stop_in_reasoning = true, .parser = {.in_reasoning = true}},
            bytes);
    EXPECT_EQ(anywhere.reasoning, "say");
    EXPECT_THAT(anywhere.content, IsEmpty());
    EXPECT_EQ(anywhere.stop, "END");
  }
}

TEST_F(Text, StopsWaitForMinTokens) {
  EXPECT_EQ(say("a.b.c.d", {.stops = {"."}, .min_tokens = 4}, true).content, "a.b.c");
  EXPECT_EQ(say("a.b.c.d", {.stops = {"."}, .min_tokens = 40}, true).content, "a.b.c.d");
}

TEST_F(Text, IsOverAfterTheOnlyCall) {
  const auto tools = std::make_shared<ToolSchemas>(Json());
  ChoiceText choice(tokenizer(), {.parser = {.tools = tools, .parallel_calls = false}});
  ChatMessage message;
  const std::vector<int32_t> ids =
      tokenizer().encode("<tool_call>\n<function=f>\n</function>").value();
  for (const int32_t id : ids) message.append(choice.push({.token = id}));
  EXPECT_TRUE(choice.is_over());
  EXPECT_EQ(choice.stop_found(), std::nullopt);
  message.append(choice.finish(Ending::kStop));
  EXPECT_EQ(choice.finish_reason(), "tool_calls");
  std::string json;
  append_message(json, message, false, ReasoningField::kBoth);
  EXPECT_THAT(json, testing::MatchesRegex(
                        R"(\{"role":"assistant","content":null,"tool_calls":\[\{"id":)"
                        R"("call_[0-9a-f]{24}","type":"function","function":\{"name":"f",)"
                        R"("arguments":"\{\}"\}\}\]\})"));
}

TEST_F(Text, DeltasSayAllOfAToken) {
  const std::vector<ToolCall> calls = {{.id = "call_1", .name = "f", .arguments = {}},
                                       {.id = "call_2", .name = "g", .arguments = {}}};
  const auto text = [&calls](const OutputDelta& delta, bool in_reasoning = false) {
    std::string out;
    append_delta(out, delta, calls, in_reasoning, ReasoningField::kReasoning);
    return out;
  };
  EXPECT_EQ(text({}), R"({"content":""})");
  EXPECT_EQ(text({}, true), R"({"reasoning":""})");
  EXPECT_EQ(text({.reasoning = "r", .answer = "a"}), R"({"reasoning":"r","content":"a"})");
  EXPECT_EQ(text({.answer = "a",
                  .calls = {{.index = 0, .arguments = "}"},
                            {.index = 1, .begins = true, .name = "g", .arguments = "{"}}}),
            R"({"content":"a","tool_calls":[{"index":0,"function":{"arguments":"}"}},{"index":1,)"
            R"("id":"call_2","type":"function","function":{"name":"g","arguments":"{"}}]})");
  EXPECT_EQ(text({.reasoning = "r", .calls = {{.index = 0, .arguments = "x"}}}),
            R"({"reasoning":"r","tool_calls":[{"index":0,"function":{"arguments":"x"}}]})");
}

TEST_F(Text, TheEndTokenIsNoText) {
  ChoiceText hidden(tokenizer(), {.skip_special = false});
  EXPECT_THAT(hidden.push({.token = 4002, .is_stop = true}).answer, IsEmpty());
  ChoiceText shown(tokenizer(), {.skip_special = false, .include_stop = true});
  EXPECT_EQ(shown.push({.token = 4002, .is_stop = true}).answer, "<|im_end|>");
}

// The recorded cases of reasoning, if they are at hand.
TEST_F(Text, FollowsTheReasoningCases) {
  const char* shared = std::getenv("PEWTER_SHARED");
  const Result<std::string> file = read_file(
      std::string(shared == nullptr ? "" : shared) + "/cases/reasoning.json", int64_t{1} << 20);
  if (!file) GTEST_SKIP() << "no cases: PEWTER_SHARED names no folder with them";
  const Json cases = Json::parse(*file).value();
  for (const Json& recorded : cases.find("cases")->as_array()) {
    const Json& expect = *recorded.find("expect");
    const bool parses = recorded.find("reasoning_parser")->is_string();
    const ChoiceTextOptions options{
        .parser = {.in_reasoning =
                       parses &&
                       opens_reasoning(recorded.find("prompt_ends_with")->as_string(), {})}};
    for (const bool bytes : {false, true}) {
      const Said said = say(recorded.find("model_output")->as_string(), options, bytes);
      const std::string name = recorded.find("id")->as_string();
      const auto text_of = [&](const char* key) {
        return expect.find(key)->is_null() ? "" : expect.find(key)->as_string();
      };
      EXPECT_EQ(said.reasoning, text_of("reasoning")) << name;
      EXPECT_EQ(said.content, text_of("content")) << name;
      if (expect.find("usage_reasoning_tokens_equal_completion_tokens") != nullptr) {
        EXPECT_EQ(said.reasoning_tokens, said.tokens) << name;
      }
    }
  }
}

}  // namespace
}  // namespace pewter::server
