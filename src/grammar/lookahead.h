// Look-aheads at the front of a pattern: no part of the text, they say what else it must or must
// not begin with, and automata can be asked that separately.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace pewter::grammar {

// What is found in a text where `found` all are and none of `not_found` is.
struct PartedPattern {
  std::vector<std::string> found, not_found;
};

// "^(?=A)(?!B|C)D" is parted into ^A and ^D, and ^B|^C that is not to be found. A pattern that does
// not begin like that, or of several alternatives, is left as it is.
PartedPattern part_lookaheads(std::string_view pattern);

}  // namespace pewter::grammar
