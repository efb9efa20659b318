#include "base/utf8.h"

namespace pewter {

Utf8Step utf8_next(std::string_view text) {
  if (text.empty()) return {};
  const auto byte = [&](size_t i) { return static_cast<unsigned char>(text[i]); };
  const unsigned char lead = byte(0);
  if (lead < 0x80) return {.code_point = lead, .length = 1};
  // The second byte's range is narrower after E0, ED, F0 and F4: no overlong forms, surrogates, or
  // > U+10FFFF.
  int count = 0;
  unsigned char low = 0x80, high = 0xBF;
  char32_t code_point = 0;
  if (lead >= 0xC2 && lead <= 0xDF) {
    count = 1;
    code_point = lead & 0x1Fu;
  } else if (lead >= 0xE0 && lead <= 0xEF) {
    count = 2;
    code_point = lead & 0x0Fu;
    if (lead == 0xE0) low = 0xA0;
    if (lead == 0xED) high = 0x9F;
  } else if (lead >= 0xF0 && lead <= 0xF4) {
    count = 3;
    code_point = lead & 0x07u;
    if (lead == 0xF0) low = 0x90;
    if (lead == 0xF4) high = 0x8F;
  } else {
    return {.code_point = kReplacementCharacter, .length = 1, .valid = false};
  }
  for (int i = 1; i <= count; ++i) {
    const auto at = static_cast<size_t>(i);
    if (at >= text.size())
      return {.code_point = kReplacementCharacter, .length = i, .valid = false, .truncated = true};
    if (byte(at) < low || byte(at) > high)
      return {.code_point = kReplacementCharacter, .length = i, .valid = false};
    code_point = (code_point << 6) | (byte(at) & 0x3Fu);
    low = 0x80;
    high = 0xBF;
  }
  return {.code_point = code_point, .length = count + 1};
}

size_t find_invalid_utf8(std::string_view text) {
  size_t offset = 0;
  while (offset < text.size()) {
    const Utf8Step step = utf8_next(text.substr(offset));
    if (!step.valid) return offset;
    offset += static_cast<size_t>(step.length);
  }
  return std::string_view::npos;
}

bool is_valid_utf8(std::string_view text) {
  return find_invalid_utf8(text) == std::string_view::npos;
}

std::string replace_invalid_utf8(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  while (!text.empty()) {
    const Utf8Step step = utf8_next(text);
    if (step.valid)
      out.append(text.substr(0, static_cast<size_t>(step.length)));
    else
      append_utf8(out, kReplacementCharacter);
    text.remove_prefix(static_cast<size_t>(step.length));
  }
  return out;
}

void append_utf8(std::string& out, char32_t c) {
  const auto put = [&](char32_t bits) {
    out += static_cast<char>(static_cast<unsigned char>(bits));
  };
  if (c < 0x80) {
    put(c);
  } else if (c < 0x800) {
    put(0xC0 | (c >> 6));
    put(0x80 | (c & 0x3F));
  } else if (c < 0x10000) {
    put(0xE0 | (c >> 12));
    put(0x80 | ((c >> 6) & 0x3F));
    put(0x80 | (c & 0x3F));
  } else {
    put(0xF0 | (c >> 18));
    put(0x80 | ((c >> 12) & 0x3F));
    put(0x80 | ((c >> 6) & 0x3F));
    put(0x80 | (c & 0x3F));
  }
}

}  // namespace pewter
