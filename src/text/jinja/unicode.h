// Character properties and case mapping as Python's str methods see them. Properties come from
// utf8proc.
#pragma once

#include <string>
#include <string_view>

namespace pewter::jinja {

// What str.strip() removes and str.split() splits at; not U+200B, not U+FEFF.
bool is_space(char32_t c);
// What str.splitlines() breaks at.
bool is_line_break(char32_t c);
bool is_alpha(char32_t c);
bool is_decimal(char32_t c);
bool is_numeric(char32_t c);  // decimal digits, other digits and number letters
bool is_upper(char32_t c);
bool is_lower(char32_t c);
bool is_printable(char32_t c);
bool is_word(char32_t c);  // \w: letters, numbers, underscore

std::string to_upper(std::string_view text);
std::string to_lower(std::string_view text);
std::string to_title(std::string_view text);  // str.title(): each run of letters on its own
std::string swap_case(std::string_view text);
std::string capitalize(std::string_view text);

}  // namespace pewter::jinja
