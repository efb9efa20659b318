// UTF-8: validation, decoding, and replacement of broken bytes the way Python and browsers do it
// (one U+FFFD per maximal ill-formed subpart, Unicode 15 §3.9, "substitution of maximal subparts").
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace pewter {

inline constexpr char32_t kReplacementCharacter = 0xFFFD;

// One step through text. length is 1..4, or 0 at the end of text.
struct Utf8Step {
  char32_t code_point = 0;  // U+FFFD when the bytes are ill-formed
  int length = 0;           // bytes consumed
  bool valid = true;
  bool truncated = false;  // ill-formed only because the text ends inside a character
};
Utf8Step utf8_next(std::string_view text);

bool is_valid_utf8(std::string_view text);
// Offset of the first ill-formed byte, or npos.
size_t find_invalid_utf8(std::string_view text);
std::string replace_invalid_utf8(std::string_view text);
void append_utf8(std::string& out, char32_t code_point);

}  // namespace pewter
