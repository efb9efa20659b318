#include "text/jinja/literals.h"

#include <algorithm>
#include <charconv>

#include "base/utf8.h"

namespace pewter::jinja {
namespace {

bool is_digit(char c) { return c >= '0' && c <= '9'; }

bool is_base_digit(char c, int base) {
  const int value = is_digit(c)            ? c - '0'
                    : c >= 'a' && c <= 'f' ? c - 'a' + 10
                    : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                           : 99;
  return value < base;
}

// Digits with single underscores between them, appended to out; returns where they end.
size_t read_digits(std::string_view text, size_t at, int base, std::string& out) {
  while (at < text.size()) {
    if (is_base_digit(text[at], base))
      out += text[at++];
    else if (text[at] == '_' && at + 1 < text.size() && is_base_digit(text[at + 1], base))
      ++at;
    else
      break;
  }
  return at;
}

}  // namespace

Result<NumberLiteral> read_number(std::string_view text, bool allow_float) {
  const char mark = text.size() > 2 && text[0] == '0' ? static_cast<char>(text[1] | 0x20) : '\0';
  const int base = mark == 'x' ? 16 : mark == 'o' ? 8 : mark == 'b' ? 2 : 10;
  NumberLiteral literal;
  if (base != 10) {
    std::string digits;
    literal.length = read_digits(text, 2, base, digits);
    if (!digits.empty()) {
      int64_t value = 0;
      const auto [end, failure] =
          std::from_chars(digits.data(), digits.data() + digits.size(), value, base);
      if (failure != std::errc())
        return Error{ErrorCode::kUnsupported, "a number past 64 bits that is not decimal"};
      literal.text = str_cat(value);
      return literal;
    }
  }
  size_t at = read_digits(text, 0, 10, literal.text);
  if (allow_float) {
    if (at + 1 < text.size() && text[at] == '.' && is_digit(text[at + 1])) {
      literal.is_float = true;
      literal.text += '.';
      at = read_digits(text, at + 1, 10, literal.text);
    }
    if (at < text.size() && (text[at] == 'e' || text[at] == 'E')) {
      size_t digits = at + 1;
      if (digits < text.size() && (text[digits] == '+' || text[digits] == '-')) ++digits;
      if (digits < text.size() && is_digit(text[digits])) {
        literal.is_float = true;
        literal.text += text.substr(at, digits - at);
        at = read_digits(text, digits, 10, literal.text);
      }
    }
  }
  if (!literal.is_float)  // 007 is 7
    literal.text.erase(0, std::min(literal.text.find_first_not_of('0'), literal.text.size() - 1));
  literal.length = at;
  return literal;
}

Result<std::string> unescape(std::string_view text) {
  static constexpr std::string_view kPlain = "\\'\"abfnrtv";
  static constexpr std::string_view kMeaning = "\\'\"\a\b\f\n\r\t\v";
  std::string out;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '\\' || i + 1 >= text.size()) {
      out += text[i];
      continue;
    }
    const char c = text[++i];
    if (c == '\n') continue;  // a backslash at the end of a line joins the lines
    if (const size_t plain = kPlain.find(c); plain != std::string_view::npos) {
      out += kMeaning[plain];
      continue;
    }
    int base = 16;
    size_t least = 0, most = 0, begin = i + 1;
    if (c == 'x') least = most = 2;
    if (c == 'u') least = most = 4;
    if (c == 'U') least = most = 8;
    if (c >= '0' && c <= '7') {
      base = 8;
      begin = i;
      least = 1;
      most = 3;
    }
    if (c == 'N') return Error{ErrorCode::kUnsupported, "a character escape by name"};
    if (most == 0) {
      out += '\\';
      out += c;
      continue;
    }
    size_t end = begin;
    uint32_t value = 0;
    while (end < text.size() && end - begin < most && is_base_digit(text[end], base)) ++end;
    if (end - begin < least) return Error{ErrorCode::kCorruptData, "a truncated escape"};
    std::from_chars(text.data() + begin, text.data() + end, value, base);
    if (value > 0x10FFFF || (value >= 0xD800 && value < 0xE000))
      return Error{ErrorCode::kCorruptData, "an escape that is no character"};
    append_utf8(out, value);
    i = end - 1;
  }
  return out;
}

}  // namespace pewter::jinja
