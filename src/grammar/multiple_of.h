// Numbers that are multiples of a step, as automata that divide digit by digit.
#pragma once

#include "grammar/number_range.h"

namespace pewter::grammar {

// `numbers`, texts of decimals without an exponent, but for those that are no multiple of every
// step and those that are one of `excluded`. Errors: kUnsupported for steps of too many digits,
// kInvalidArgument when the automaton is too large.
Result<Expr> multiples_in(const Expr& numbers, const std::vector<Decimal>& steps,
                          const std::vector<Decimal>& excluded, bool integer);
// Those of `numbers`, decimals without an exponent, that are no integers.
Result<Expr> fractions_in(const Expr& numbers);
bool is_multiple(const Decimal& value, const Decimal& step);

}  // namespace pewter::grammar
