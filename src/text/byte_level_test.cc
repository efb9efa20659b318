#include "text/byte_level.h"

#include <gtest/gtest.h>

#include "base/utf8.h"

namespace pewter {
namespace {

TEST(ByteLevel, KnownStandIns) {
  std::string text;
  append_byte_level(text, " a\n\x7F\xAD~\xFF");
  EXPECT_EQ(text, "ĠaĊġŃ~ÿ");
  EXPECT_EQ(byte_level_bytes("ĠaĊġŃ~ÿ"), " a\n\x7F\xAD~\xFF");
}

TEST(ByteLevel, EveryByteRoundTripsThroughAPrintableCharacter) {
  for (int byte = 0; byte < 256; ++byte) {
    const char32_t character = byte_level_character(static_cast<uint8_t>(byte));
    EXPECT_GT(character, U' ');
    EXPECT_EQ(byte_level_byte(character), static_cast<uint8_t>(byte));
  }
  EXPECT_EQ(byte_level_byte(U' '), std::nullopt);
  EXPECT_EQ(byte_level_byte(0x144), std::nullopt);
  EXPECT_EQ(byte_level_byte(0x10FFFF), std::nullopt);
}

TEST(ByteLevel, TextOutsideTheAlphabetStandsForItself) {
  EXPECT_EQ(byte_level_bytes("<|im_end|>"), "<|im_end|>");
  EXPECT_EQ(byte_level_bytes("Ġ日"), "Ġ日");
  EXPECT_EQ(byte_level_bytes("a b"), "a b");
}

}  // namespace
}  // namespace pewter
