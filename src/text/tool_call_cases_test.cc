// Recorded outputs of models and the message each must become, however the text is cut:
// tests/golden/text/tool_calls.json, and the cases of PEWTER_SHARED where they are at hand.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstdlib>

#include "base/file.h"
#include "base/rng.h"
#include "base/utf8.h"
#include "text/output_parser.h"

namespace pewter {
namespace {

struct Call {
  std::string name, arguments;
  bool operator==(const Call&) const = default;
};

struct Message {
  std::string reasoning, content, finish_reason;
  std::vector<Call> calls;
  bool operator==(const Message&) const = default;
};

void PrintTo(const Message& message, std::ostream* out) {
  *out << "reasoning " << Json(message.reasoning).dump() << " content "
       << Json(message.content).dump() << " finish " << message.finish_reason;
  for (const Call& call : message.calls) *out << "\n  " << call.name << " " << call.arguments;
}

class Collector {
 public:
  explicit Collector(const OutputParserOptions& options) : parser_(options) {}
  void push(std::string_view text) { add(parser_.push(text)); }
  Message finish(Ending ending) {
    add(parser_.finish(ending));
    message_.finish_reason = parser_.finish_reason();
    return message_;
  }
  const Message& so_far() const { return message_; }

 private:
  void add(const OutputDelta& delta) {
    message_.reasoning += delta.reasoning;
    message_.content += delta.answer;
    for (const ToolCallDelta& call : delta.calls) {
      const auto index = static_cast<size_t>(call.index);
      EXPECT_EQ(call.begins, index == message_.calls.size()) << "the order of pieces";
      EXPECT_EQ(call.begins, !call.name.empty());
      if (call.begins) message_.calls.push_back({call.name, ""});
      if (index < message_.calls.size()) message_.calls[index].arguments += call.arguments;
    }
  }

  OutputParser parser_;
  Message message_;
};

Message parse(const OutputParserOptions& options, Ending ending,
              const std::vector<std::string_view>& pieces) {
  Collector collector(options);
  for (const std::string_view piece : pieces) collector.push(piece);
  return collector.finish(ending);
}

std::vector<std::string_view> characters(std::string_view text) {
  std::vector<std::string_view> pieces;
  while (!text.empty()) {
    const auto size = static_cast<size_t>(utf8_next(text).length);
    pieces.push_back(text.substr(0, size));
    text.remove_prefix(size);
  }
  return pieces;
}

std::vector<std::string_view> random_pieces(std::string_view text, Rng& rng) {
  std::vector<std::string_view> pieces;
  const uint64_t longest = 1 + rng.below(24);
  while (!text.empty()) {
    pieces.push_back(text.substr(0, rng.below(longest + 1)));
    text.remove_prefix(pieces.back().size());
  }
  return pieces;
}

std::string text_or(const Json* value, std::string fallback) {
  return value != nullptr && value->is_string() ? value->as_string() : std::move(fallback);
}

void expect_calls(const Json& expect, const Message& message) {
  const Json::Array& wanted = expect.find("tool_calls")->as_array();
  ASSERT_EQ(message.calls.size(), wanted.size());
  for (size_t i = 0; i < wanted.size(); ++i) {
    EXPECT_EQ(message.calls[i].name, wanted[i].find("name")->as_string());
    const Json* arguments = wanted[i].find("arguments");
    const Result<Json> parsed = Json::parse(message.calls[i].arguments);
    if (const Json* exact = wanted[i].find("arguments_text")) {
      EXPECT_EQ(message.calls[i].arguments, exact->as_string());
    } else if (arguments == nullptr) {
      EXPECT_FALSE(parsed) << message.calls[i].arguments;
    } else if (parsed) {
      // Numbers compare as numbers, members in any order.
      Json::Object sorted = parsed->as_object(), want = arguments->as_object();
      std::ranges::sort(sorted, {}, &Json::Member::first);
      std::ranges::sort(want, {}, &Json::Member::first);
      EXPECT_EQ(Json(sorted).dump(), Json(want).dump());
    } else {
      ADD_FAILURE() << message.calls[i].arguments;
    }
  }
  const Json* prefix = expect.find("arguments_prefix_of_json_with");
  if (prefix == nullptr) return;
  for (const auto& [key, value] : prefix->as_object())
    EXPECT_NE(message.calls.back().arguments.find(str_cat(Json(key).dump(), ": ", value.dump())),
              std::string::npos);
}

void run_case(const Json& file, const Json& one) {
  const std::string text = one.find("model_output")->as_string();
  const Ending ending =
      text_or(one.find("end"), "stop") == "stop" ? Ending::kStop : Ending::kLength;
  OutputParserOptions options;
  const Json* thinking = one.find("thinking");
  options.in_reasoning = thinking != nullptr
                             ? thinking->as_bool()
                             : text_or(one.find("reasoning_parser"), "") == "qwen3" &&
                                   opens_reasoning(one.find("prompt_ends_with")->as_string(), {});
  if (const Json* set = one.find("tool_set"))
    options.tools = std::make_shared<ToolSchemas>(*file.find("tool_sets")->find(set->as_string()));
  const std::string choice = text_or(one.find("tool_choice"), "auto");
  if (choice == "none") options.tool_choice = ToolChoice::kNone;
  if (choice == "named") options.tool_choice = ToolChoice::kNamed;
  if (const Json* parallel = one.find("parallel")) options.parallel_calls = parallel->as_bool();

  const Message whole = parse(options, ending, {text});
  const Json& expect = *one.find("expect");
  EXPECT_EQ(whole.reasoning, text_or(expect.find("reasoning"), ""));
  EXPECT_EQ(whole.content, text_or(expect.find("content"), ""));
  EXPECT_EQ(whole.finish_reason, expect.find("finish_reason")->as_string());
  if (expect.find("tool_calls") != nullptr) expect_calls(expect, whole);

  EXPECT_EQ(parse(options, ending, characters(text)), whole);
  for (size_t cut = 0; cut <= text.size(); ++cut)
    EXPECT_EQ(parse(options, ending, {text.substr(0, cut), text.substr(cut)}), whole) << cut;
  if (const Json* chunks = one.find("chunks")) {
    std::vector<std::string_view> pieces;
    for (const Json& chunk : chunks->as_array()) pieces.push_back(chunk.as_string());
    EXPECT_EQ(parse(options, ending, pieces), whole);
  }
  for (uint64_t seed = 0; seed < 100; ++seed) {
    Rng rng(seed);
    ASSERT_EQ(parse(options, ending, random_pieces(text, rng)), whole) << "seed " << seed;
  }
}

void run_file(const std::string& path, size_t least) {
  const Json file = Json::parse(read_file(path).value()).value();
  const Json::Array& cases = file.find("cases")->as_array();
  ASSERT_GE(cases.size(), least);
  for (const Json& one : cases) {
    SCOPED_TRACE(one.find("id")->as_string());
    run_case(file, one);
  }
}

TEST(ToolCallCases, AreTheSameHoweverTheyAreCut) {
  run_file(std::string(PEWTER_SOURCE_DIR) + "/tests/golden/text/tool_calls.json", 50);
}

TEST(ToolCallCases, OfTheReference) {
  const char* shared = std::getenv("PEWTER_SHARED");
  if (shared == nullptr || !read_file(str_cat(shared, "/cases/tool_calls.json")))
    GTEST_SKIP() << "PEWTER_SHARED names no folder with cases";
  run_file(str_cat(shared, "/cases/tool_calls.json"), 16);
  run_file(str_cat(shared, "/cases/reasoning.json"), 8);
}

TEST(ToolCalls, StreamWhileTheyAreGenerated) {
  const Json tools = Json::parse(R"([{"name":"save","parameters":{"properties":{
      "text":{"type":"string"},"count":{"type":"integer"}}}}])")
                         .value();
  Collector collector({.tools = std::make_shared<ToolSchemas>(tools)});
  const auto arguments = [&collector](std::string_view text) {
    collector.push(text);
    return collector.so_far().calls.empty() ? "-" : collector.so_far().calls[0].arguments;
  };
  EXPECT_EQ(arguments("<tool_call>\n<function=save>\n"), "-");
  EXPECT_EQ(arguments("<parameter=text>"), R"({"text": ")");
  EXPECT_EQ(arguments("\nsome \"words\""), R"({"text": "some \"words\")");
  EXPECT_EQ(arguments("\n"), R"({"text": "some \"words\")");
  EXPECT_EQ(arguments("and < more"), R"({"text": "some \"words\"\nand < more)");
  EXPECT_EQ(arguments("\n</parameter>\n<parameter=count>\n1"),
            R"({"text": "some \"words\"\nand < more", "count": )");
  EXPECT_EQ(arguments("2\n</parameter>\n</function>"),
            R"({"text": "some \"words\"\nand < more", "count": 12})");
}

TEST(ToolCalls, LetTextGoOnceItIsNoCall) {
  Collector collector({.tools = std::make_shared<ToolSchemas>(Json())});
  const auto content = [&collector](std::string_view text) {
    collector.push(text);
    return collector.so_far().content;
  };
  EXPECT_EQ(content("It starts with <tool_call>"), "It starts with");
  EXPECT_EQ(content(" a"), "It starts with <tool_call> a");
  EXPECT_EQ(content("nd <tool_call>\n{ x"), "It starts with <tool_call> and <tool_call>\n{ x");
}

TEST(ToolCalls, EndAtTheFirstWhereOnlyOneIsWanted) {
  OutputParser parser({.tools = std::make_shared<ToolSchemas>(Json()), .parallel_calls = false});
  parser.push("<tool_call>\n<function=f>\n</function>");
  EXPECT_TRUE(parser.is_done());
  EXPECT_TRUE(parser.push("\n</tool_call>\n\nMore.").empty());
  EXPECT_TRUE(parser.finish().empty());
  EXPECT_EQ(parser.finish_reason(), "tool_calls");
}

// Texts put together from what is hard to tell apart.
TEST(ToolCalls, OfRandomTextsAreTheSameHoweverTheyAreCut) {
  constexpr std::array<std::string_view, 26> kPieces = {"<tool_call>",
                                                        "</tool_call>",
                                                        "<function=f>",
                                                        "<function=g>",
                                                        "</function>",
                                                        "<parameter=a>",
                                                        "<parameter=n>",
                                                        "<parameter=x>",
                                                        "</parameter>",
                                                        "<think>",
                                                        "</think>",
                                                        "\n",
                                                        "\n",
                                                        "\n",
                                                        " ",
                                                        "text",
                                                        "7",
                                                        "<",
                                                        "<fun",
                                                        "</",
                                                        "{\"name\": \"f\"}",
                                                        "{\"name\": \"f\", \"arguments\": {",
                                                        "\"a\": \"<\"",
                                                        "}",
                                                        "é",
                                                        "{"};
  const auto tools = std::make_shared<ToolSchemas>(
      Json::parse(R"([{"name":"f","parameters":{"properties":{"a":{"type":"string"},
                      "n":{"type":"integer"}}}}])")
          .value());
  int64_t calls = 0;
  for (uint64_t seed = 0; seed < 20'000; ++seed) {
    Rng rng(seed);
    std::string text = rng.below(2) == 0 ? "" : "<tool_call>\n<function=f>\n<parameter=a>\n";
    for (uint64_t n = rng.below(24); n > 0; --n) text += kPieces[rng.below(kPieces.size())];
    if (rng.below(2) == 0) text += "\n</parameter>\n</function>\n</tool_call>";
    const OutputParserOptions options{
        .in_reasoning = rng.below(2) == 0, .tools = tools, .parallel_calls = rng.below(4) != 0};
    const Ending ending = rng.below(3) == 0 ? Ending::kLength : Ending::kStop;
    const Message whole = parse(options, ending, {text});
    ASSERT_EQ(parse(options, ending, characters(text)), whole) << text << "\nseed " << seed;
    ASSERT_EQ(parse(options, ending, random_pieces(text, rng)), whole) << text << "\nseed " << seed;
    // Only the last call can have been cut off.
    for (size_t i = 0; i + 1 < whole.calls.size(); ++i) {
      ASSERT_TRUE(Json::parse(whole.calls[i].arguments)) << text << "\nseed " << seed;
    }
    calls += static_cast<int64_t>(whole.calls.size());
  }
  EXPECT_GT(calls, 5'000);  // they are not all talk
}

// What would take hours if anything were read again and again.
TEST(ToolCalls, TakeNoLongerForCraftedTexts) {
  const auto tools = std::make_shared<ToolSchemas>(
      Json::parse(R"([{"name":"f","parameters":{"properties":{"a":{"type":"string"}}}}])").value());
  for (const char* unit :
       {"<tool_call>\n<function=f>\n<parameter=a>\n", "<tool_call>\n<function=f>\n</function>\n",
        "<tool_call>\n<function=f>\n</function>\n</tool_call>\n", "</parameter>\n</function>\n",
        "<tool_call>{\"name\": \"", "<function=f>\n", "</parameter>   \n", "\n \n"}) {
    std::string text;
    while (text.size() < 100'000) text += unit;
    std::vector<std::string_view> pieces;
    for (size_t at = 0; at < text.size(); at += 4)
      pieces.push_back(std::string_view(text).substr(at, 4));
    for (const bool thinking : {false, true}) {
      const OutputParserOptions options{.in_reasoning = thinking, .tools = tools};
      EXPECT_EQ(parse(options, Ending::kStop, pieces), parse(options, Ending::kStop, {text}));
    }
  }
}

}  // namespace
}  // namespace pewter
