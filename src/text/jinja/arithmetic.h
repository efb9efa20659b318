// Operators on numbers, strings and sequences, after Python's.
#pragma once

#include "base/result.h"
#include "text/jinja/ast.h"
#include "text/jinja/value.h"

namespace pewter::jinja {

// Errors: wrong types, division by zero, an integer result past 64 bits (we keep such integers only
// as they were given).
Result<Value> binary(Budget& budget, BinaryOp op, const Value& left, const Value& right);
Result<Value> negate(const Value& value);
Result<Value> positive(const Value& value);

// format % values, and |format. values is a tuple, a mapping, or the one value.
Result<Value> percent_format(Budget& budget, const Text& format, const Value& values);

// What an operation on an undefined value says.
Error undefined_error(const Value& value);

}  // namespace pewter::jinja
