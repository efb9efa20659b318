#include "text/jinja/unicode.h"

#include <utf8proc.h>

#include <array>
#include <utility>

#include "base/utf8.h"

namespace pewter::jinja {
namespace {

utf8proc_category_t category(char32_t c) {
  return utf8proc_category(static_cast<utf8proc_int32_t>(c));
}

bool is_cased(char32_t c) {
  return is_upper(c) || is_lower(c) || category(c) == UTF8PROC_CATEGORY_LT;
}

// Skipped when looking for the letters around a sigma.
bool is_case_ignorable(char32_t c) {
  switch (category(c)) {
    case UTF8PROC_CATEGORY_MN:
    case UTF8PROC_CATEGORY_ME:
    case UTF8PROC_CATEGORY_CF:
    case UTF8PROC_CATEGORY_LM:
    case UTF8PROC_CATEGORY_SK:
      return true;
    default:
      return c == '\'' || c == '.' || c == ':' || c == 0xB7 || c == 0x2019;
  }
}

// The common characters whose upper case is more than one character; utf8proc maps one to one.
constexpr std::array<std::pair<char32_t, std::string_view>, 10> kLongUpper = {{
    {0xDF, "SS"},
    {0x149, "ʼN"},
    {0x1F0, "J̌"},
    {0xFB00, "FF"},
    {0xFB01, "FI"},
    {0xFB02, "FL"},
    {0xFB03, "FFI"},
    {0xFB04, "FFL"},
    {0xFB05, "ST"},
    {0xFB06, "ST"},
}};

void append_upper(std::string& out, char32_t c) {
  for (const auto& [from, to] : kLongUpper) {
    if (from == c) {
      out += to;
      return;
    }
  }
  append_utf8(out, static_cast<char32_t>(utf8proc_toupper(static_cast<utf8proc_int32_t>(c))));
}

void append_title(std::string& out, char32_t c) {
  if (c == 0xDF)
    out += "Ss";
  else
    append_utf8(out, static_cast<char32_t>(utf8proc_totitle(static_cast<utf8proc_int32_t>(c))));
}

bool cased_letter_after(std::string_view text) {
  while (!text.empty()) {
    const Utf8Step step = utf8_next(text);
    if (!is_case_ignorable(step.code_point)) return is_cased(step.code_point);
    text.remove_prefix(static_cast<size_t>(step.length));
  }
  return false;
}

// The character of text at offset. cased_before: a letter with case comes before it.
void append_lower(std::string& out, std::string_view text, size_t offset, bool cased_before) {
  const Utf8Step step = utf8_next(text.substr(offset));
  if (step.code_point == 0x130) {
    out += "i̇";
  } else if (step.code_point == 0x3A3) {  // a sigma that ends a word has a form of its own
    const auto after = text.substr(offset + static_cast<size_t>(step.length), 64);
    out += cased_before && !cased_letter_after(after) ? "ς" : "σ";
  } else {
    append_utf8(out, static_cast<char32_t>(
                         utf8proc_tolower(static_cast<utf8proc_int32_t>(step.code_point))));
  }
}

enum class Mapping { kUpper, kLower, kTitle, kCapitalize, kSwap };

std::string map_case(std::string_view text, Mapping mapping) {
  std::string out;
  out.reserve(text.size());
  bool after_letter = false;  // the character before this one is cased
  bool cased_before = false;  // the same, looking past what is case-ignorable
  for (size_t i = 0; i < text.size();) {
    const Utf8Step step = utf8_next(text.substr(i));
    const char32_t c = step.code_point;
    const bool first = mapping == Mapping::kTitle ? !after_letter : i == 0;
    if (mapping == Mapping::kUpper || (mapping == Mapping::kSwap && is_lower(c)))
      append_upper(out, c);
    else if (first && mapping != Mapping::kLower && mapping != Mapping::kSwap)
      append_title(out, c);
    else
      append_lower(out, text, i, cased_before);
    after_letter = is_cased(c);
    if (!is_case_ignorable(c)) cased_before = after_letter;
    i += static_cast<size_t>(step.length);
  }
  return out;
}

}  // namespace

bool is_space(char32_t c) {
  return (c >= 0x09 && c <= 0x0D) || (c >= 0x1C && c <= 0x20) || c == 0x85 || c == 0xA0 ||
         c == 0x1680 || (c >= 0x2000 && c <= 0x200A) || c == 0x2028 || c == 0x2029 || c == 0x202F ||
         c == 0x205F || c == 0x3000;
}

bool is_line_break(char32_t c) {
  return (c >= 0x0A && c <= 0x0D) || (c >= 0x1C && c <= 0x1E) || c == 0x85 || c == 0x2028 ||
         c == 0x2029;
}

bool is_alpha(char32_t c) {
  const auto kind = category(c);
  return kind >= UTF8PROC_CATEGORY_LU && kind <= UTF8PROC_CATEGORY_LO;
}

bool is_decimal(char32_t c) { return category(c) == UTF8PROC_CATEGORY_ND; }

bool is_numeric(char32_t c) {
  const auto kind = category(c);
  return kind >= UTF8PROC_CATEGORY_ND && kind <= UTF8PROC_CATEGORY_NO;
}

bool is_upper(char32_t c) { return category(c) == UTF8PROC_CATEGORY_LU; }

bool is_lower(char32_t c) { return category(c) == UTF8PROC_CATEGORY_LL || c == 0xAA || c == 0xBA; }

bool is_printable(char32_t c) {
  if (c == ' ') return true;
  switch (category(c)) {
    case UTF8PROC_CATEGORY_CN:
    case UTF8PROC_CATEGORY_CC:
    case UTF8PROC_CATEGORY_CF:
    case UTF8PROC_CATEGORY_CS:
    case UTF8PROC_CATEGORY_CO:
    case UTF8PROC_CATEGORY_ZS:
    case UTF8PROC_CATEGORY_ZL:
    case UTF8PROC_CATEGORY_ZP:
      return false;
    default:
      return true;
  }
}

bool is_word(char32_t c) { return is_alpha(c) || is_numeric(c) || c == '_'; }

std::string to_upper(std::string_view text) { return map_case(text, Mapping::kUpper); }
std::string to_lower(std::string_view text) { return map_case(text, Mapping::kLower); }
std::string to_title(std::string_view text) { return map_case(text, Mapping::kTitle); }
std::string swap_case(std::string_view text) { return map_case(text, Mapping::kSwap); }
std::string capitalize(std::string_view text) { return map_case(text, Mapping::kCapitalize); }

}  // namespace pewter::jinja
