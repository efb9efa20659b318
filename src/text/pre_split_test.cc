#include "text/pre_split.h"

#include <gtest/gtest.h>

#include "base/clock.h"

namespace pewter {
namespace {

// The expression of Qwen3.5's tokenizer.json.
constexpr const char* kQwen =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";

using Pieces = std::vector<std::string>;

Pieces pieces(std::string_view expression, const std::string& text) {
  const PreSplit split = PreSplit::compile(expression).value();
  PreSplit::Matcher matcher(split);
  std::vector<size_t> ends;
  matcher.split(text, ends).value();
  Pieces out;
  size_t begin = 0;
  for (const size_t end : ends) {
    out.push_back(text.substr(begin, end - begin));
    begin = end;
  }
  EXPECT_EQ(begin, text.size());
  return out;
}

TEST(PreSplit, MarksBelongToTheirLetters) {
  EXPECT_EQ(pieces(kQwen, "पानी और चाय"), (Pieces{"पानी", " और", " चाय"}));
  EXPECT_EQ(pieces(kQwen, "x\u0301\u0302y"), (Pieces{"x\u0301\u0302y"}));
  // U+FE0F is a mark: it takes one symbol along, unless a blank has bound that one already. The
  // joiner U+200D is no mark.
  EXPECT_EQ(pieces(kQwen, "❤\uFE0F\u200D🔥 ok"), (Pieces{"❤\uFE0F", "\u200D🔥", " ok"}));
  EXPECT_EQ(pieces(kQwen, "a ❤\uFE0F\u200D🔥"), (Pieces{"a", " ❤", "\uFE0F", "\u200D🔥"}));
  EXPECT_EQ(pieces(kQwen, "👩\u200D💻, hi"), (Pieces{"👩\u200D💻,", " hi"}));
}

TEST(PreSplit, SymbolsStayTogetherAndDigitsDoNot) {
  EXPECT_EQ(pieces(kQwen, "if(a->b!=90){\n\n  c();"),
            (Pieces{"if", "(a", "->", "b", "!=", "9", "0", "){\n\n", " ", " c", "();"}));
  EXPECT_EQ(pieces(kQwen, "१२ ²x"), (Pieces{"१", "२", " ", "²", "x"}));
}

TEST(PreSplit, ContractionsInAnyCase) {
  EXPECT_EQ(pieces(kQwen, "we'Ve they'RE I'm it'S"),
            (Pieces{"we", "'Ve", " they", "'RE", " I", "'m", " it", "'S"}));
  EXPECT_EQ(pieces(kQwen, "'xx'ſx"), (Pieces{"'xx", "'ſ", "x"})) << "the long s is an s";
}

TEST(PreSplit, ABlankRunLeavesItsLastBlankForTheNextWord) {
  EXPECT_EQ(pieces(kQwen, "   two   words  "), (Pieces{"  ", " two", "  ", " words", "  "}));
  EXPECT_EQ(pieces(kQwen, "a \t\n \r\n  b"), (Pieces{"a", " \t\n \r\n", " ", " b"}));
  EXPECT_EQ(pieces(kQwen, "a\u00A0\u3000b"), (Pieces{"a", "\u00A0", "\u3000b"}));
}

TEST(PreSplit, WhatUnicodeCallsWhiteSpaceAndNothingElse) {
  EXPECT_EQ(pieces(kQwen, ".\u0085\u0085."), (Pieces{".", "\u0085", "\u0085", "."}));
  // Neither is White_Space, though PCRE2's own \s takes the first for a blank.
  EXPECT_EQ(pieces(kQwen, ".\u180E\u200B."), (Pieces{".\u180E\u200B."}));
}

TEST(PreSplit, StretchesBetweenMatchesArePieces) {
  EXPECT_EQ(pieces("\\d+", "a12bc3"), (Pieces{"a", "12", "bc", "3"}));
  EXPECT_EQ(pieces("\\d+", "abc"), (Pieces{"abc"}));
  EXPECT_EQ(pieces("^b$", "a\nb\nc"), (Pieces{"a\n", "b", "\nc"})) << "line anchors";
  EXPECT_EQ(pieces("x", ""), (Pieces{}));
}

TEST(PreSplit, RefusesWhatTheEnginesReadDifferently) {
  for (const char* expression :
       {"\\w+", "\\h", "a\\b", "\\R", "[a[b]]", "[a&&b]", "[]a]", "a{1,2}+", "a{,3}", "(?m:a)",
        "(?im)a", "(?#x)a", "(*UCP)a", "\\1", "a\\K", "\\u0041", "[[:alpha:]]"}) {
    const auto split = PreSplit::compile(expression);
    ASSERT_FALSE(split.has_value()) << expression;
    EXPECT_EQ(split.error().code, ErrorCode::kUnsupported) << expression;
  }
  EXPECT_EQ(PreSplit::compile("a*").error().code, ErrorCode::kUnsupported);
  for (const char* expression : {"(a", "[a", "a\\", "(?", "(?i", "\\p{Nope}", "\xff"})
    EXPECT_FALSE(PreSplit::compile(expression).has_value()) << expression;
}

TEST(PreSplit, ExplodingExpressionsAreStopped) {
  const PreSplit split = PreSplit::compile("(?:a|aa)+[bc]").value();
  PreSplit::Matcher matcher(split);
  std::vector<size_t> ends;
  const Stopwatch watch;
  const Status status = matcher.split(std::string(200, 'a'), ends);
  ASSERT_FALSE(status.has_value());
  EXPECT_EQ(status.error().code, ErrorCode::kResourceExhausted);
  EXPECT_LT(watch.seconds(), 5);
  EXPECT_TRUE(matcher.split("aab", ends).has_value()) << "the matcher stays usable";
}

TEST(PreSplit, LongRunsTakeLinearTime) {
  const Stopwatch watch;
  const size_t size = 2000000;
  EXPECT_EQ(pieces(kQwen, std::string(size, 'a')).size(), 1u);
  EXPECT_EQ(pieces(kQwen, std::string(size, ' ') + "a").size(), 2u);
  EXPECT_EQ(pieces(kQwen, std::string(size, '\n')).size(), 1u);
  EXPECT_EQ(pieces(kQwen, std::string(size, '7')).size(), size);
  EXPECT_LT(watch.seconds(), 30);
}

}  // namespace
}  // namespace pewter
