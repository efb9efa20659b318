// JSON numbers between bounds, as expressions: decimal texts without an exponent are compared with
// a bound digit by digit, so a bound is exact however many digits it has.
#pragma once

#include <optional>
#include <string>

#include "base/json.h"
#include "grammar/expression.h"

namespace pewter::grammar {

// A decimal number without an exponent: (-1)^negative whole.fraction; no zeros lead `whole` nor
// trail `fraction`, and zero has neither ("" and "").
struct Decimal {
  bool negative = false;
  std::string whole, fraction;
  bool is_zero() const { return whole.empty() && fraction.empty(); }
};

struct NumberRange {
  struct Bound {
    Decimal value;
    bool exclusive = false;
  };
  std::optional<Bound> least, most;
  bool integer = false;  // without a fraction

  // Keeps the stricter of two.
  void at_least(const Bound& bound);
  void at_most(const Bound& bound);
};

// Error: kUnsupported for a number with more than 400 digits.
Result<Decimal> to_decimal(const Json& number);
int compare(const Decimal& a, const Decimal& b);
bool contains(const NumberRange& range, const Decimal& value);
// nothing() where no number is in the range.
Result<Expr> numbers_in(const NumberRange& range);

}  // namespace pewter::grammar
