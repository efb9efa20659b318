// A compiled regular expression of a config (Perl syntax, what Python's re takes of it that configs
// use).
#pragma once

#include <memory>
#include <string_view>

#include "base/result.h"

namespace pewter {

class NamePattern {
 public:
  static Result<NamePattern> compile(std::string_view expression);

  // Python's re.search and re.match. A pattern that backtracks beyond a fixed bound matches
  // nothing.
  bool found_in(std::string_view text) const { return matches(text, false); }
  bool matches_start_of(std::string_view text) const { return matches(text, true); }

 private:
  NamePattern() = default;
  bool matches(std::string_view text, bool anchored) const;

  std::shared_ptr<void> code_;   // pcre2_code; not changed by matching
  std::shared_ptr<void> match_;  // pcre2_match_data: one thread at a time
};

}  // namespace pewter
