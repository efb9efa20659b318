#include "grammar/lookahead.h"

#include "base/str_cat.h"

namespace pewter::grammar {
namespace {

// Calls see(i) for every character outside sets and escapes, with how many groups are open before
// it, until it returns false.
template <typename See>
void scan(std::string_view pattern, See see) {
  int depth = 0;
  bool in_set = false;
  for (size_t i = 0; i < pattern.size(); ++i) {
    const char c = pattern[i];
    if (c == '\\') {
      ++i;
      continue;
    }
    if (in_set) {
      in_set = c != ']';
      continue;
    }
    if (!see(i, depth)) return;
    if (c == '[') in_set = true;
    if (c == '(') ++depth;
    if (c == ')') --depth;
  }
}

// Its alternatives, each from the beginning of the text.
std::string anchored(std::string_view pattern) {
  std::string out = "^";
  size_t from = 0;
  scan(pattern, [&](size_t i, int depth) {
    if (depth == 0 && pattern[i] == '|') {
      out += str_cat(pattern.substr(from, i + 1 - from), "^");
      from = i + 1;
    }
    return true;
  });
  out += pattern.substr(from);
  return out;
}

// Where the group that begins the pattern ends, behind its parenthesis; npos: nowhere.
size_t group_end(std::string_view pattern) {
  size_t end = std::string_view::npos;
  scan(pattern, [&](size_t i, int depth) {
    if (depth != 1 || pattern[i] != ')') return true;
    end = i + 1;
    return false;
  });
  return end;
}

bool has_alternatives(std::string_view pattern) {
  bool found = false;
  scan(pattern, [&](size_t i, int depth) {
    found |= depth == 0 && pattern[i] == '|';
    return true;
  });
  return found;
}

}  // namespace

PartedPattern part_lookaheads(std::string_view pattern) {
  PartedPattern whole{.found = {std::string(pattern)}, .not_found = {}};
  if (!pattern.starts_with("^(?") || has_alternatives(pattern)) return whole;
  PartedPattern parted;
  std::string_view rest = pattern.substr(1);
  while (rest.starts_with("(?=") || rest.starts_with("(?!")) {
    const size_t end = group_end(rest);
    if (end == std::string_view::npos) return whole;
    (rest[2] == '=' ? parted.found : parted.not_found).push_back(anchored(rest.substr(3, end - 4)));
    rest.remove_prefix(end);
  }
  if (parted.found.empty() && parted.not_found.empty()) return whole;
  if (!rest.empty()) parted.found.push_back(str_cat("^", rest));
  return parted;
}

}  // namespace pewter::grammar
