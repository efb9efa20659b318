// What counts as blank in texts that people and models write.
#pragma once

#include <algorithm>
#include <string_view>

namespace pewter {

inline constexpr std::string_view kBlankBytes = " \t\r\n";

inline bool is_blank(std::string_view text) {
  return text.find_first_not_of(kBlankBytes) == std::string_view::npos;
}
// Without the blanks around it.
inline std::string_view trimmed(std::string_view text) {
  const size_t begin = std::min(text.find_first_not_of(kBlankBytes), text.size());
  return text.substr(begin, text.find_last_not_of(kBlankBytes) + 1 - begin);
}

}  // namespace pewter
