// str_cat joins values into a string; g++ 12 has no std::format. Numbers print in their shortest
// exact form.
#pragma once

#include <array>
#include <charconv>
#include <concepts>
#include <string>
#include <string_view>

namespace pewter {

inline void append_piece(std::string& out, std::string_view piece) { out += piece; }
inline void append_piece(std::string& out, char piece) { out += piece; }
void append_piece(std::string& out, std::same_as<bool> auto piece) {
  out += piece ? "true" : "false";
}

template <typename Number>
  requires(std::integral<Number> || std::floating_point<Number>) && (!std::same_as<Number, bool>) &&
          (!std::same_as<Number, char>)
void append_piece(std::string& out, Number number) {
  std::array<char, 64> digits;
  const auto end = std::to_chars(digits.data(), digits.data() + digits.size(), number).ptr;
  out.append(digits.data(), end);
}

// A number with a fixed count of digits behind the point; "0" when it is too long to print.
inline std::string fixed(double value, int digits) {
  std::array<char, 64> text;
  const auto end = std::to_chars(text.data(), text.data() + text.size(), value,
                                 std::chars_format::fixed, digits);
  return end.ec == std::errc() ? std::string(text.data(), end.ptr) : "0";
}

template <typename... Pieces>
std::string str_cat(const Pieces&... pieces) {
  std::string out;
  (append_piece(out, pieces), ...);
  return out;
}

}  // namespace pewter
