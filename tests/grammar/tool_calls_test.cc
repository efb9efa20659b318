// Tool calls that follow their grammar, read back by the parser of the server: whatever a model
// without sense writes is the calls it was held to.
#include <gmock/gmock.h>

#include "grammar/grammar_compiler.h"
#include "grammar/random_text.h"
#include "grammar/reader.h"
#include "grammar/tool_grammar.h"
#include "text/output_parser.h"

namespace pewter {
namespace {

using grammar::AnswerRules;
using testing::HasSubstr;

constexpr const char* kTools = R"([
  {"type":"function","function":{"name":"write_file","parameters":{"type":"object","properties":{
    "path":{"type":"string"},"content":{"type":"string"},"mode":{"type":"string","enum":["new","append"]},
    "lines":{"type":"integer"}},"required":["path","content"]}}},
  {"type":"function","function":{"name":"search","strict":true,"parameters":{"type":"object","properties":{
    "query":{"type":"string","pattern":"^[a-z ]+$","maxLength":12},"limit":{"type":["integer","null"],
    "minimum":1,"maximum":50},"where":{"$ref":"#/$defs/place"},"tags":{"type":"array","items":{"enum":["x","y"]},
    "maxItems":2}},"required":["query","where"],"additionalProperties":false,
    "$defs":{"place":{"type":"object","properties":{"lat":{"type":"number","minimum":-90,"maximum":90},
    "name":{"type":"string","maxLength":4}},"required":["lat"],"additionalProperties":false}}}}},
  {"type":"function","function":{"name":"ping"}}
])";

struct Call {
  std::string name;
  Json arguments;
};
struct Output {
  std::string reasoning, content;
  std::vector<Call> calls;
  std::string finish_reason;
};

Output parse(std::string_view text, const Json& tools, ToolChoice choice, bool thinking) {
  OutputParser parser({.in_reasoning = thinking,
                       .tools = std::make_shared<const ToolSchemas>(tools),
                       .tool_choice = choice});
  OutputDelta delta = parser.push(text);
  delta.append(parser.finish());
  Output output{.reasoning = delta.reasoning, .content = delta.answer};
  std::vector<std::string> arguments;
  for (const ToolCallDelta& piece : delta.calls) {
    if (piece.begins) {
      output.calls.push_back({piece.name, {}});
      arguments.emplace_back();
    }
    arguments[static_cast<size_t>(piece.index)] += piece.arguments;
  }
  for (size_t i = 0; i < arguments.size(); ++i) {
    const auto json = Json::parse(arguments[i]);
    EXPECT_TRUE(json) << arguments[i] << "\nin\n" << text;
    if (json) output.calls[i].arguments = *json;
  }
  output.finish_reason = parser.finish_reason();
  return output;
}

std::shared_ptr<const grammar::TokenGrammar> compile(const Json& tools, bool required,
                                                     const std::string& named, bool thinking) {
  static grammar::GrammarCompiler compiler([] { return test::small_vocabulary(); });
  const AnswerRules rules{.kind = AnswerRules::Kind::kToolCalls,
                          .tools = {.tools = tools, .required = required, .named = named}};
  return compiler.compile(rules, thinking).value();
}

void expect_satisfies(const Call& call) {
  const Json& arguments = call.arguments;
  ASSERT_TRUE(arguments.is_object());
  const auto find = [&](const char* key) { return arguments.find(key); };
  if (call.name == "ping") {
    EXPECT_TRUE(arguments.as_object().empty());
  } else if (call.name == "write_file") {
    ASSERT_TRUE(find("path") != nullptr && find("content") != nullptr) << arguments.dump();
    EXPECT_TRUE(find("path")->is_string() && find("content")->is_string());
    if (const Json* mode = find("mode")) {
      EXPECT_THAT(mode->as_string(), testing::AnyOf("new", "append"));
    }
    if (const Json* lines = find("lines")) {
      EXPECT_TRUE(lines->is_number());
    }
  } else {
    ASSERT_EQ(call.name, "search");
    ASSERT_TRUE(find("query") != nullptr && find("where") != nullptr) << arguments.dump();
    EXPECT_THAT(find("query")->as_string(), testing::MatchesRegex("[a-z ]+"));
    EXPECT_LE(find("query")->as_string().size(), 12u);
    EXPECT_LE(std::abs(find("where")->find("lat")->as_double()), 90);
    if (const Json* limit = find("limit"); limit != nullptr && !limit->is_null()) {
      EXPECT_GE(limit->as_integer(), 1);
      EXPECT_LE(limit->as_integer(), 50);
    }
    if (const Json* tags = find("tags")) {
      EXPECT_LE(tags->as_array().size(), 2u);
    }
  }
}

TEST(ToolCalls, WhatTheGrammarAdmitsTheParserReads) {
  const Json tools = Json::parse(kTools).value();
  Rng rng(11);
  int calls = 0, whole = 0;
  for (const bool thinking : {false, true}) {
    for (const char* named : {"", "search", "write_file"}) {
      const auto grammar = compile(tools, true, named, thinking);
      const ToolChoice choice = *named == 0 ? ToolChoice::kRequired : ToolChoice::kNamed;
      for (int i = 0; i < 80; ++i) {
        const std::optional<std::string> text = test::random_text(grammar, rng, 600);
        if (!text) continue;
        ++whole;
        const Output output = parse(*text, tools, choice, thinking);
        EXPECT_EQ(output.content, "") << *text;
        ASSERT_FALSE(output.calls.empty()) << *text;
        EXPECT_EQ(output.finish_reason, *named == 0 ? "tool_calls" : "stop") << *text;
        if (*named != 0) {
          EXPECT_EQ(output.calls.size(), 1u) << *text;
        }
        for (const Call& call : output.calls) {
          if (*named != 0) {
            EXPECT_EQ(call.name, named);
          }
          expect_satisfies(call);
          if (HasFailure()) FAIL() << *text;
        }
        calls += static_cast<int>(output.calls.size());
      }
    }
  }
  EXPECT_GT(whole, 100);
  EXPECT_GT(calls, whole);
}

TEST(ToolCalls, CallsAreWrittenAsTheModelsKnowThem) {
  const Json tools = Json::parse(kTools).value();
  const auto grammar = compile(tools, true, "", false);
  const auto admits = [&](std::string_view text) {
    return grammar::matches(grammar->automaton(), text);
  };
  const std::string open = "<tool_call>\n<function=write_file>\n";
  const std::string path = "<parameter=path>\na.txt\n</parameter>\n";
  const std::string content =
      "<parameter=content>\n<b>\"x\"</b>\n</parameter> is a tag\n</parameter>\n";
  const std::string end = "</function>\n</tool_call>";
  EXPECT_TRUE(admits(open + path + content + end));
  EXPECT_TRUE(admits(open + content + path + end)) << "any order";
  EXPECT_TRUE(admits(open + path + content + end + "\n" + open + path + content + end));
  EXPECT_FALSE(admits(open + path + end)) << "content is required";
  EXPECT_FALSE(admits(open + path + path + content + end)) << "path twice";
  EXPECT_FALSE(admits(open + path + content + "</function>\n"));
  EXPECT_FALSE(admits("Sure. " + open + path + content + end));
  EXPECT_FALSE(admits("<tool_call>\n<function=other>\n</function>\n</tool_call>"));
  EXPECT_TRUE(admits("<tool_call>\n<function=ping>\n</function>\n</tool_call>"));
  EXPECT_FALSE(admits(""));
}

TEST(ToolCalls, StrictToolsAreHeldToTheirSchemasWhereTextIsFreeOtherwise) {
  const Json tools = Json::parse(kTools).value();
  EXPECT_TRUE(grammar::has_strict_tool(tools));
  const auto grammar = compile(tools, false, "", false);
  const auto admits = [&](std::string_view text) {
    return grammar::matches(grammar->automaton(), text);
  };
  const std::string call =
      "<tool_call>\n<function=search>\n<parameter=query>\nabc\n</parameter>\n"
      "<parameter=where>\n{\"lat\": 4.5}\n</parameter>\n</function>\n</tool_call>";
  EXPECT_TRUE(admits("Just text, with <tags> in it."));
  EXPECT_TRUE(admits(""));
  EXPECT_TRUE(admits("Let me look. " + call));
  EXPECT_TRUE(admits(call + "\n" + call));
  EXPECT_FALSE(admits("Let me look. <tool_call>"));
  std::string wrong = call;
  wrong.replace(wrong.find("abc"), 3, "ABC");
  EXPECT_FALSE(admits(wrong));
}

TEST(ToolCalls, StrictParametersMayDependOnEachOther) {
  const Json tools = Json::parse(R"([{"type":"function","function":{"name":"f","strict":true,
      "parameters":{"type":"object","properties":{"id":{"type":"integer"},"name":{"type":"string"},
      "deep":{"type":"boolean"}},"oneOf":[{"required":["id"]},{"required":["name"]}],
      "dependentRequired":{"deep":["id"]}}}}])")
                         .value();
  const auto grammar = compile(tools, true, "", false);
  const auto admits = [&](const std::string& parameters) {
    return grammar::matches(grammar->automaton(), "<tool_call>\n<function=f>\n" + parameters +
                                                      "</function>\n</tool_call>");
  };
  const std::string id = "<parameter=id>\n7\n</parameter>\n",
                    name = "<parameter=name>\nsome text\n</parameter>\n",
                    deep = "<parameter=deep>\ntrue\n</parameter>\n";
  for (const std::string& good : {id, name, id + deep, deep + id})
    EXPECT_TRUE(admits(good)) << good;
  for (const std::string& bad : {std::string(), deep, id + name, name + id, name + deep})
    EXPECT_FALSE(admits(bad)) << bad;
}

TEST(ToolCalls, ErrorsNameToolAndPlace) {
  const Json tools =
      Json::parse(R"([{"type":"function","function":{"name":"f","strict":true,"parameters":
      {"type":"object","properties":{"a":{"type":"array","uniqueItems":true}}}}}])")
          .value();
  const auto refused = grammar::compile_answer(
      {.kind = AnswerRules::Kind::kToolCalls, .tools = {.tools = tools, .required = true}}, false);
  ASSERT_FALSE(refused);
  EXPECT_THAT(refused.error().message,
              HasSubstr("f: #/properties/a: uniqueItems is supported where"));
}

}  // namespace
}  // namespace pewter
