// Regular expressions: the part of ECMAScript's (and Python's) language that is regular.
//
//   characters, . [a-z] [^…] \d \w \s \D \W \S \n \t \r \f \v \0 \xHH \uHHHH \u{H…} and \ before
//   punctuation; ( ) (?: ) (?<name> ) |; * + ? {n} {n,} {n,m}, lazy ones too, which match the same
//   texts; ^ at the beginning and $ at the end of an outermost alternative.
// Refused by name: look-around, back-references, \b \B, \p{…}, anchors elsewhere, flags.
#pragma once

#include <functional>

#include "base/result.h"
#include "grammar/expression.h"

namespace pewter::grammar {

struct RegexOptions {
  // How a character of these ranges is written: characters() or json_characters().
  std::function<Expr(const std::vector<CodePointRange>&)> encode;
  // The expression describes the whole text; otherwise it may be found anywhere in it.
  bool whole = false;
};

// Error: kInvalidArgument or kUnsupported, with the place in the pattern.
Result<Expr> parse_regex(std::string_view pattern, const RegexOptions& options);

}  // namespace pewter::grammar
