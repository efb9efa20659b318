#include "base/utf8.h"

#include <gtest/gtest.h>

namespace pewter {
namespace {

TEST(Utf8, RoundTripsEveryPlane) {
  for (const char32_t c : {U'a', U'é', U'世', U'\U0001F600', U'\U0010FFFF', U'\uD7FF', U'\uE000'}) {
    std::string text;
    append_utf8(text, c);
    const Utf8Step step = utf8_next(text);
    EXPECT_EQ(step.code_point, c);
    EXPECT_EQ(static_cast<size_t>(step.length), text.size());
    EXPECT_TRUE(is_valid_utf8(text));
  }
}

TEST(Utf8, ReplacesMaximalSubparts) {
  // What Python's bytes.decode("utf-8", "replace") gives.
  EXPECT_EQ(replace_invalid_utf8("a\xF0\x9F\x98z"), "a\uFFFDz");
  EXPECT_EQ(replace_invalid_utf8("\xC0\x80"), "\uFFFD\uFFFD");
  EXPECT_EQ(replace_invalid_utf8("\xED\xA0\x80"), "\uFFFD\uFFFD\uFFFD");
  EXPECT_EQ(replace_invalid_utf8("\xE4\xB8"), "\uFFFD");
  EXPECT_EQ(find_invalid_utf8("ok\xFF"), 2u);
}

TEST(Utf8, TellsTruncatedFromWrong) {
  EXPECT_TRUE(utf8_next("\xE4\xB8").truncated);
  EXPECT_FALSE(utf8_next("\xE4x").truncated);
}

}  // namespace
}  // namespace pewter
