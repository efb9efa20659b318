#include "text/byte_level.h"

#include <array>

#include "base/utf8.h"

namespace pewter {
namespace {

constexpr int kFirstShifted = 0x100;
constexpr int kShiftedCount =
    68;  // 33 controls and the blank, DEL and 33 C1 bytes, the soft hyphen

constexpr bool stands_for_itself(int byte) {
  return (byte >= 0x21 && byte <= 0x7E) || (byte >= 0xA1 && byte <= 0xAC) || byte >= 0xAE;
}

struct Alphabet {
  std::array<uint16_t, 256> character{};
  std::array<int16_t, kFirstShifted + kShiftedCount> byte{};
};

constexpr Alphabet make_alphabet() {
  Alphabet alphabet;
  for (auto& byte : alphabet.byte) byte = -1;
  int next = kFirstShifted;
  for (int byte = 0; byte < 256; ++byte) {
    const int character = stands_for_itself(byte) ? byte : next++;
    alphabet.character[static_cast<size_t>(byte)] = static_cast<uint16_t>(character);
    alphabet.byte[static_cast<size_t>(character)] = static_cast<int16_t>(byte);
  }
  return alphabet;
}

constexpr Alphabet kAlphabet = make_alphabet();
static_assert(kAlphabet.character[0xAD] == kFirstShifted + kShiftedCount - 1);

}  // namespace

char32_t byte_level_character(uint8_t byte) { return kAlphabet.character[byte]; }

std::optional<uint8_t> byte_level_byte(char32_t character) {
  if (character >= kAlphabet.byte.size() || kAlphabet.byte[character] < 0) return std::nullopt;
  return static_cast<uint8_t>(kAlphabet.byte[character]);
}

void append_byte_level(std::string& out, std::string_view bytes) {
  for (const char byte : bytes) append_utf8(out, byte_level_character(static_cast<uint8_t>(byte)));
}

std::string byte_level_bytes(std::string_view token_text) {
  std::string bytes;
  bytes.reserve(token_text.size());
  for (std::string_view rest = token_text; !rest.empty();) {
    const Utf8Step step = utf8_next(rest);
    const std::optional<uint8_t> byte =
        step.valid ? byte_level_byte(step.code_point) : std::nullopt;
    if (!byte) return std::string(token_text);
    bytes += static_cast<char>(*byte);
    rest.remove_prefix(static_cast<size_t>(step.length));
  }
  return bytes;
}

}  // namespace pewter
