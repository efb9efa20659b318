// String and number literals of the template language.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "base/result.h"

namespace pewter::jinja {

struct NumberLiteral {
  bool is_float = false;
  std::string text;   // decimal, without underscores; an integer is plain digits
  size_t length = 0;  // bytes of source
};
// The number that text begins with (its first byte is a digit): 12, 1_000, 0x1F, 1.5, 2e-3.
// Errors: a hexadecimal, octal or binary number past 64 bits.
Result<NumberLiteral> read_number(std::string_view text, bool allow_float);

// The inside of a string literal with Python's escapes resolved. An unknown escape keeps its
// backslash. Errors: a broken escape, or one that names a surrogate.
Result<std::string> unescape(std::string_view text);

}  // namespace pewter::jinja
