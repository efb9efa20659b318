// The notations beside JSON Schema, and what the automaton does with hostile grammars.
#include <gmock/gmock.h>

#include "base/clock.h"
#include "grammar/ebnf.h"
#include "grammar/grammar_compiler.h"
#include "grammar/reader.h"
#include "grammar/regex.h"

namespace pewter::grammar {
namespace {

using testing::HasSubstr;
using Kind = AnswerRules::Kind;

Result<Automaton> compile(Kind kind, std::string_view text) {
  return compile_answer({.kind = kind, .text = std::string(text)}, /*in_reasoning=*/false);
}

struct Texts {
  Kind kind;
  const char* grammar;
  std::vector<const char*> good, bad;
};

void expect_texts(const Texts& texts) {
  const auto automaton = compile(texts.kind, texts.grammar);
  ASSERT_TRUE(automaton) << texts.grammar << ": " << automaton.error().message;
  for (const char* text : texts.good)
    EXPECT_TRUE(matches(*automaton, text)) << texts.grammar << " should match " << text;
  for (const char* text : texts.bad)
    EXPECT_FALSE(matches(*automaton, text)) << texts.grammar << " should not match " << text;
}

TEST(Regex, MatchesWholeTexts) {
  const Texts cases[] = {
      {Kind::kRegex, "abc", {"abc"}, {"", "ab", "abcd", "xabc"}},
      {Kind::kRegex, "a|bc|", {"a", "bc", ""}, {"b", "abc"}},
      {Kind::kRegex, "(ab)*c+d?", {"c", "ababccd"}, {"ab", "abd", "cdd"}},
      {Kind::kRegex, "a{2}b{1,3}c{2,}", {"aabcc", "aabbbcccc"}, {"abcc", "aabbbbcc", "aabc"}},
      {Kind::kRegex, "[a-cx]+?[^a-c]", {"ax", "xx", "ccé"}, {"a", "aa", "dx"}},
      {Kind::kRegex, "\\d\\w\\s\\D\\W\\S", {"1_ a-x", "9Z\tb!!"}, {"a_ a-x", "1_xa-x"}},
      {Kind::kRegex, "^(?:a|(?<name>b))$", {"a", "b"}, {"ab", ""}},
      {Kind::kRegex, "\\x41\\u00e9\\u{1F600}\\n", {"Aé😀\n"}, {"A"}},
      {Kind::kRegex, "\\ud83d\\ude00[\\]\\-\\\\]", {"😀]", "😀-", "😀\\"}, {"😀x"}},
      {Kind::kRegex, ".", {"a", "é", "😀", "\t"}, {"", "\n", "ab", "\xc3", "\xff"}},
      {Kind::kRegex, "[^\\n]{1000}", {}, {"short"}},
      {Kind::kRegex, "(a{50,60}b){2,3}", {}, {"ab"}},
      {Kind::kRegex, "a.c*", {"abc", "aéccc"}, {"a"}},
  };
  for (const Texts& one : cases) expect_texts(one);
  const Automaton counted = compile(Kind::kRegex, "(a{50,60}b){2,3}").value();
  const std::string part = std::string(55, 'a') + "b", few = std::string(49, 'a') + "b";
  EXPECT_TRUE(matches(counted, part + part));
  EXPECT_TRUE(matches(counted, part + part + part));
  EXPECT_FALSE(matches(counted, part));
  EXPECT_FALSE(matches(counted, part + few));
  EXPECT_FALSE(matches(counted, part + part + part + part));
}

TEST(Regex, SaysWhatIsWrong) {
  const std::pair<const char*, const char*> cases[] = {{"a(b", "without )"},
                                                       {"a)", "unmatched )"},
                                                       {"[a", "without ]"},
                                                       {"*a", "nothing to repeat"},
                                                       {"a**", "nothing to repeat"},
                                                       {"a{3,2}", "wrong way round"},
                                                       {"[z-a]", "wrong way round"},
                                                       {"\\", "at the end"},
                                                       {"\\q", "no meaning"},
                                                       {"(?=a)", "look-ahead"},
                                                       {"(a)\\1", "back-references"},
                                                       {"\\bx", "word borders"},
                                                       {"\\p{L}", "Unicode properties"},
                                                       {"a^b", "anchors"},
                                                       {"(a$)", "anchors"},
                                                       {"(?i)a", "flags"},
                                                       {"a{999999}", "above"},
                                                       {"a++", "possessive"},
                                                       {"\\ud83d", "no character"},
                                                       {"\\u12", "hexadecimal"}};
  for (const auto& [pattern, why] : cases) {
    const auto refused = compile(Kind::kRegex, pattern);
    ASSERT_FALSE(refused) << pattern;
    EXPECT_THAT(refused.error().message, HasSubstr(why)) << pattern;
    EXPECT_THAT(refused.error().message, HasSubstr("at character")) << pattern;
  }
}

TEST(Ebnf, MatchesWhatItsRulesSay) {
  const Texts cases[] = {
      {Kind::kEbnf, "root ::= \"a\" | \"b\" [0-9]+ # a comment\n", {"a", "b12"}, {"", "b", "ab"}},
      {Kind::kEbnf,
       "root ::= expr\nexpr ::= term ((\"+\" | \"-\") term)*\n"
       "term ::= [0-9]+ |\n  \"(\" expr \")\"\n",
       {"1", "1+2-3", "((1+2)-3)"},
       {"", "1+", "(1", "1)"}},
      {Kind::kEbnf,
       "list ::= item (\",\" list)?\nitem::=\"x\"{2,3}\nroot ::= list",
       {"xx", "xx,xxx"},
       {"x", "xx,", "xxxx"}},
      {Kind::kEbnf,
       "root ::= \"\\\"\" [^\"\\\\]* \"\\x22\\n\" \"\\u00e9\" .",
       {"\"ab\"\néz"},
       {"\"ab\"\né"}},
      {Kind::kEbnf, "root ::= \"a\" root | \"\"", {"", "aaaa"}, {"b"}},
      {Kind::kEbnf, "root ::= empty \"x\" empty\nempty ::= \"\"", {"x"}, {""}},
  };
  for (const Texts& one : cases) expect_texts(one);
  // A list that calls itself at its end takes no depth.
  const Automaton list = compile(Kind::kEbnf, "root ::= \"a\" root | \"b\"").value();
  EXPECT_TRUE(matches(list, std::string(5000, 'a') + "b"));
}

TEST(Ebnf, SaysWhatIsWrong) {
  const std::pair<const char*, const char*> cases[] = {
      {"", "no rule root"},
      {"other ::= \"a\"", "no rule root"},
      {"root ::= missing", "line 1: there is no rule missing"},
      {"root ::= \"a\"\nroot ::= \"b\"", "line 2: the rule root comes twice"},
      {"root = \"a\"", "line 1: want a rule"},
      {"root ::= \"a", "closing quote"},
      {"root ::= [a", "without ]"},
      {"root ::= (\"a\"", "without )"},
      {"root ::= \"a\")", "without ("},
      {"root ::= \"\\q\"", "no meaning"},
      {"root ::= *", "want a text"},
      {"root ::= \"a\"{3,1}", "wrong way round"},
      {"root ::= root \"a\" | \"b\"", "calls itself before"},
      {"root ::= x \"a\" | \"b\"\nx ::= \"\" | y\ny ::= root", "calls itself before"},
      {"root ::= \"\"", "the empty text"},
      {"root ::= \"a\" root", "no text matches"}};
  for (const auto& [grammar, why] : cases) {
    const auto refused = compile(Kind::kEbnf, grammar);
    ASSERT_FALSE(refused) << grammar;
    EXPECT_THAT(refused.error().message, HasSubstr(why)) << grammar;
  }
}

// Whatever is asked for ends soon, with an automaton or with words.
TEST(Automaton, HostileGrammarsAreErrorsAndNoHangs) {
  std::string many = "root ::= r0\n", deep, wide = "root ::= ";
  for (int i = 0; i < 3000; ++i)
    many += str_cat("r", i, " ::= \"a\" r", (i + 1) % 3000, " r", (i + 7) % 3000, " | \"b\"\n");
  for (int i = 0; i < 90; ++i) deep = "(" + deep + "a|b)*";
  for (int i = 0; i < 10000; ++i) wide += str_cat(i == 0 ? "" : " | ", "\"", i * 7919, "\"");
  const std::pair<Kind, std::string> cases[] = {
      {Kind::kRegex, "(a|b)*a(a|b){20}"},
      {Kind::kRegex, "((((a{1,100}){1,100}){1,100}){1,100}){1,100}"},
      {Kind::kRegex, "((((a?){1,1000}){1,1000}){1,1000}){1,1000}"},
      {Kind::kRegex, "(.{1,1000}x){1,1000}"},
      {Kind::kRegex, "([a-z]{0,99}[0-9]{0,99}){0,99999}"},
      {Kind::kRegex, deep},
      {Kind::kEbnf, many},
      {Kind::kEbnf, wide},
      {Kind::kEbnf,
       "root ::= a a a a a a a a\na ::= b b b b b b b b\nb ::= c c c c c c c c\nc ::= \"x\" root?"},
  };
  for (const auto& [kind, text] : cases) {
    const Stopwatch watch;
    const auto automaton = compile(kind, text);
    EXPECT_LT(watch.seconds(), 20) << text.substr(0, 60);
    if (!automaton) {
      EXPECT_THAT(automaton.error().message, HasSubstr("too large")) << text.substr(0, 60);
    }
  }
}

TEST(Automaton, HostileSchemasAreErrorsAndNoHangs) {
  Json many_patterns, one_of, nested = Json(true), values;
  many_patterns.set("type", "object");
  Json properties;
  for (int i = 0; i < 400; ++i)
    properties.set(str_cat("p", i), Json(Json::Object{{"type", "string"},
                                                      {"pattern", str_cat("(a|b)*a(a|b){9}", i)},
                                                      {"maxLength", 40}}));
  many_patterns.set("properties", properties);
  for (int depth = 0; depth < 30; ++depth) {
    Json::Array alternatives = {nested, Json(Json::Object{{"type", "null"}})};
    nested = Json(Json::Object{{"oneOf", alternatives}});
  }
  Json::Array alternatives;
  for (int i = 0; i < 60; ++i) {
    Json alternative;
    Json::Array keys;
    for (int k = 0; k < 500; ++k) keys.emplace_back(str_cat("k", k));
    alternative.set("type", "object");
    alternative.set("required", keys);
    alternative.set("properties", properties);
    alternatives.push_back(alternative);
  }
  one_of.set("oneOf", alternatives);
  Json::Array list;
  for (int i = 0; i < 4000; ++i) list.emplace_back(str_cat("value ", i * 7919));
  values.set("allOf",
             Json::Array{Json(Json::Object{{"enum", list}}), Json(Json::Object{{"enum", list}})});
  for (const Json& schema : {many_patterns, nested, one_of, values}) {
    const Stopwatch watch;
    const auto automaton =
        compile_answer({.kind = Kind::kJsonSchema, .json = schema}, /*in_reasoning=*/false);
    EXPECT_LT(watch.seconds(), 20) << schema.dump().substr(0, 60);
    std::printf("%.3f s: %s\n", watch.seconds(),
                automaton ? "compiled" : automaton.error().message.substr(0, 100).c_str());
  }
}

// Each turn has many readings: they are bounded, and the reader says when it dropped some.
TEST(Automaton, ManyReadingsAreBounded) {
  const Automaton many =
      compile(Kind::kEbnf, "root ::= \"a\" x \"b\" | \"a\" y \"c\" | \"z\"\nx ::= root\ny ::= root")
          .value();
  Reader reader(many);
  Threads now, next;
  reader.start(now);
  for (int i = 0; i < 100; ++i) {
    reader.step(now, 'a', next);
    std::swap(now, next);
    EXPECT_LE(now.list.size(), 256u);
  }
  EXPECT_TRUE(reader.overflowed());
}

TEST(TaggedText, IsFreeBetweenItsTags) {
  const auto tagged = [](const char* tags) {
    return compile_answer({.kind = Kind::kTaggedText, .json = Json::parse(tags).value()},
                          /*in_reasoning=*/false);
  };
  const auto automaton = tagged(R"({"triggers":["<fn=","[["],"structures":[
      {"begin":"<fn=add>","schema":{"type":"object","properties":{"a":{"type":"integer"}},
       "required":["a"]},"end":"</fn>"},
      {"begin":"<fn=now>","schema":{"type":"object","properties":{}},"end":"</fn>"},
      {"begin":"[[","schema":{"enum":["x",2]},"end":"]]"}]})");
  ASSERT_TRUE(automaton) << automaton.error().message;
  for (const char* text : {"", "Only text, a < b [1]", R"(Sum: <fn=add>{"a":1}</fn>)",
                           R"(<fn=add>{"a": 1}</fn><fn=now>{}</fn> and [["x"]] or [[2]].)"})
    EXPECT_TRUE(matches(*automaton, text)) << text;
  for (const char* text : {"<fn=", "Text <fn=sub>{}</fn>", R"(<fn=add>{"a":"1"}</fn>)",
                           R"(<fn=add>{"a":1}</fn)", "[[3]]", "[[ x ]]", R"(<fn=now>{} </fn>)"})
    EXPECT_FALSE(matches(*automaton, text)) << text;
  for (const auto& [tags, place] : std::vector<std::pair<const char*, const char*>>{
           {R"({"structures":[]})", "triggers"},
           {R"({"triggers":[""],"structures":[{}]})", "triggers[0]"},
           {R"({"triggers":["<"],"structures":[]})", "structures"},
           {R"({"triggers":["<"],"structures":[5]})", "structures[0].begin"},
           {R"({"triggers":["<"],"structures":[{"begin":"a","end":"b","schema":{}}]})",
            "structures[0].begin"},
           {R"({"triggers":["<"],"structures":[{"begin":"<","end":"b"}]})", "structures[0].schema"},
           {R"({"triggers":["<"],"structures":[{"begin":"<","end":"b","schema":{"type":"x"}}]})",
            "structures[0].schema: #/type"}}) {
    const auto refused = tagged(tags);
    ASSERT_FALSE(refused) << tags;
    EXPECT_THAT(refused.error().message, HasSubstr(place));
  }
}

TEST(GrammarCompiler, KeepsWhatItCompiled) {
  int built = 0;
  GrammarCompiler compiler([&built] {
    ++built;
    std::vector<std::string> tokens;
    for (int b = 0; b < 256; ++b) tokens.emplace_back(1, static_cast<char>(b));
    return tokens;
  });
  const AnswerRules a{.kind = Kind::kRegex, .text = "a+"}, b{.kind = Kind::kRegex, .text = "b+"};
  const auto first = compiler.compile(a, false).value();
  EXPECT_EQ(compiler.compile(a, false).value(), first);
  EXPECT_NE(compiler.compile(a, true).value(), first);
  EXPECT_NE(compiler.compile(b, false).value(), first);
  for (int i = 0; i < 70; ++i)
    ASSERT_TRUE(compiler.compile({.kind = Kind::kRegex, .text = str_cat("c{", i + 1, "}")}, false));
  EXPECT_NE(compiler.compile(a, false).value(), first) << "used too long ago";
  EXPECT_EQ(built, 1);
}

TEST(GrammarCompiler, AnswersMayComeBehindReasoning) {
  const auto automaton = compile_answer({.kind = Kind::kRegex, .text = "yes|no"}, true).value();
  EXPECT_TRUE(matches(automaton, "Hm. </thin yes.\n</think>\n\nyes"));
  EXPECT_TRUE(matches(automaton, "</think>no"));
  EXPECT_FALSE(matches(automaton, "yes"));
  EXPECT_FALSE(matches(automaton, "Hm.</think>\n\nmaybe"));
  EXPECT_FALSE(matches(automaton, "Hm.</think>\n\nyes</think>no"));
}

}  // namespace
}  // namespace pewter::grammar
