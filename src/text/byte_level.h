// The byte-level alphabet: every byte has a printable stand-in character, so that a vocabulary of
// arbitrary byte strings can be written as JSON text. A byte that is a printable Latin-1 character
// stands for itself; the other 68 become U+0100, U+0101 … in byte order (a blank is "Ġ").
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace pewter {

// The stand-in of a byte.
char32_t byte_level_character(uint8_t byte);
// The byte a character stands for, or nothing when it is outside the alphabet.
std::optional<uint8_t> byte_level_byte(char32_t character);

// Bytes to stand-ins, appended to out.
void append_byte_level(std::string& out, std::string_view bytes);

// The bytes a token's text stands for. A text with any character outside the alphabet stands for
// its own UTF-8: that is how the reference decoder treats added tokens.
std::string byte_level_bytes(std::string_view token_text);

}  // namespace pewter
