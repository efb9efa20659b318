#include "text/detokenizer.h"

#include <gtest/gtest.h>

#include "base/rng.h"
#include "base/utf8.h"

namespace pewter {
namespace {

std::vector<std::string> deltas(const std::vector<std::string>& parts) {
  Utf8Assembler assembler;
  std::vector<std::string> out;
  for (const std::string& part : parts) out.push_back(assembler.push(part));
  out.push_back(assembler.flush());
  return out;
}

using Texts = std::vector<std::string>;

TEST(Utf8Assembler, HoldsBackUntilACharacterIsComplete) {
  EXPECT_EQ(deltas({"Oh ", "\xF0", "\x9F\x98", "\x8A."}), (Texts{"Oh ", "", "", "😊.", ""}));
  EXPECT_EQ(deltas({"\xC3", "\xA9\xC3"}), (Texts{"", "é", "\uFFFD"}));
}

TEST(Utf8Assembler, FlushesTheBeginningOfACharacterAsOneReplacement) {
  EXPECT_EQ(deltas({"so ", "\xF0\x9F"}), (Texts{"so ", "", "\uFFFD"}));
  EXPECT_EQ(deltas({"\xF0\x9F\x98"}), (Texts{"", "\uFFFD"}));
  Utf8Assembler assembler;
  assembler.push("\xE2\x82");
  EXPECT_TRUE(assembler.holds_back());
  EXPECT_EQ(assembler.flush(), "\uFFFD");
  EXPECT_FALSE(assembler.holds_back());
  EXPECT_EQ(assembler.push("\xAC"), "\uFFFD") << "nothing is left of the stream before";
}

TEST(Utf8Assembler, BrokenBytesAreReplacedAsSoonAsTheyAreCertain) {
  EXPECT_EQ(deltas({"\xC0\xAF"}), (Texts{"\uFFFD\uFFFD", ""}));                    // overlong
  EXPECT_EQ(deltas({"\xED", "\xA0\x80"}), (Texts{"", "\uFFFD\uFFFD\uFFFD", ""}));  // surrogate
  EXPECT_EQ(deltas({"\xF0\x9F", "a"}), (Texts{"", "\uFFFDa", ""}));
  EXPECT_EQ(deltas({"\xF8", "\x80"}), (Texts{"\uFFFD", "\uFFFD", ""}));
}

TEST(Utf8Assembler, PartsMakeTheWholeHoweverItIsCut) {
  Rng rng(7);
  for (int round = 0; round < 2000; ++round) {
    std::string bytes;
    const uint64_t size = rng.below(24);
    for (uint64_t i = 0; i < size; ++i) {
      constexpr std::string_view kLeads = "a\x80\xBF\xC3\xE0\xA0\xED\x9F\xF0\x90\xF4\x8F\xFF";
      bytes += kLeads[rng.below(kLeads.size())];
    }
    Utf8Assembler assembler;
    std::string text;
    for (size_t at = 0; at < bytes.size();) {
      const size_t count = rng.below(4);
      text += assembler.push(std::string_view(bytes).substr(at, count));
      EXPECT_TRUE(is_valid_utf8(text));
      at += count;
    }
    text += assembler.flush();
    EXPECT_EQ(text, replace_invalid_utf8(bytes));
  }
}

}  // namespace
}  // namespace pewter
