#include "text/nfc.h"

#include <gtest/gtest.h>
#include <utf8proc.h>

#include <cstdlib>

#include "base/clock.h"
#include "base/rng.h"
#include "base/utf8.h"

namespace pewter {
namespace {

std::string whole_nfc(const std::string& text) {
  auto* normalized = utf8proc_NFC(reinterpret_cast<const utf8proc_uint8_t*>(text.c_str()));
  std::string out = reinterpret_cast<const char*>(normalized);
  std::free(normalized);
  return out;
}

TEST(Nfc, ComposesReordersAndReplacesSingletons) {
  EXPECT_EQ(to_nfc("cafe\u0301").value(), "café");
  EXPECT_EQ(to_nfc("\u212B \u2126 \u212A").value(), "Å Ω K");
  EXPECT_EQ(to_nfc("q\u0307\u0323").value(), "q\u0323\u0307");
  EXPECT_EQ(to_nfc("é\u0323").value(), "\u1EB9\u0301") << "a composed letter opens up again";
  EXPECT_EQ(to_nfc("\u1112\u1161\u11AB").value(), "한");
  EXPECT_EQ(to_nfc("하\u11AB!").value(), "한!");
  EXPECT_EQ(to_nfc("\u0915\u093C").value(), "\u0915\u093C") << "excluded from composition";
  EXPECT_EQ(to_nfc("하\u11A7").value(), "하\u11A7") << "no trailing consonant";
  EXPECT_EQ(to_nfc("").value(), "");
  EXPECT_EQ(to_nfc("\u0301").value(), "\u0301");
}

TEST(Nfc, MarksNewerThanTheReferencesTablesStayPut) {
  EXPECT_EQ(to_nfc("a\u0301\u1AC9\u0323").value(), "á\u1AC9\u0323");
  EXPECT_EQ(to_nfc("\u1AC9\u0301\u0323").value(), "\u1AC9\u0323\u0301");
  EXPECT_EQ(to_nfc("\U00011935\U00011930").value(), "\U00011935\U00011930");
}

// The short cuts for plain characters, held against one pass over the whole text.
TEST(Nfc, EqualsTheWholePassForEveryCharacterInContext) {
  for (char32_t c = 1; c <= 0xE0FFF; ++c) {
    if (c == 0x30000) c = 0xE0000;  // nothing but ideographs and unassigned planes between
    if ((c >= 0xD800 && c <= 0xDFFF) || c == 0x11A7 || is_mark_unknown_to_reference(c)) continue;
    std::string text = "e";
    append_utf8(text, c);
    text += "\u0301";
    append_utf8(text, c);
    append_utf8(text, c);
    text += "\u0323x\u1161\u11A8";
    ASSERT_EQ(to_nfc(text).value(), whole_nfc(text)) << static_cast<uint32_t>(c);
    if (is_trivially_nfc(text)) {
      ASSERT_EQ(text, whole_nfc(text));
    }
    std::string pair = "\u0915";  // second halves that compose with other letters than e
    for (const char32_t first : {U'\u0915', U'\u09C7', U'\u0B47', U'\u0BC6', U'\u0DD9', U'\u1025',
                                 U'\u1100', U'\uAC00', U'\u304B', U'\u30AB', U'\U00011099'}) {
      pair.clear();
      append_utf8(pair, first);
      append_utf8(pair, c);
      ASSERT_EQ(to_nfc(pair).value(), whole_nfc(pair)) << static_cast<uint32_t>(c);
    }
  }
}

TEST(Nfc, RandomTextEqualsTheWholePass) {
  const std::u32string alphabet =
      U"aeé한하한\u0301\u0323\u0307\u0327\u0345\u0344\u212B\u0958\u0F73\u3099かは日😀\u1E9B"
      U"\u0340";
  Rng rng(1);
  for (int round = 0; round < 20000; ++round) {
    std::string text;
    for (uint64_t i = rng.below(12); i > 0; --i)
      append_utf8(text, alphabet[rng.below(alphabet.size())]);
    ASSERT_EQ(to_nfc(text).value(), whole_nfc(text)) << text;
  }
}

TEST(Nfc, LongRunsOfMarksTakeLinearTime) {
  std::string text = "a";
  for (int i = 0; i < 200000; ++i) text += "\u0301\u0323";
  const Stopwatch watch;
  const std::string out = to_nfc(text).value();
  EXPECT_EQ(out.size(), text.size() + std::string("ạ").size() - std::string("a\u0323").size());
  EXPECT_LT(watch.seconds(), 20) << "quadratic ordering takes minutes";
}

}  // namespace
}  // namespace pewter
