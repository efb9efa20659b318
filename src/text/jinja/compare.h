// Equality, order and membership, as Python defines them.
#pragma once

#include "base/result.h"
#include "text/jinja/limits.h"
#include "text/jinja/value.h"

namespace pewter::jinja {

enum class CompareOp { kEqual, kNotEqual, kLess, kLessEqual, kGreater, kGreaterEqual, kIn, kNotIn };

Result<bool> compare(Budget& budget, CompareOp op, const Value& left, const Value& right);
// ==. Never fails on types; spends steps because values may share parts and be exponentially large.
Result<bool> equal(Budget& budget, const Value& left, const Value& right);
// Less than, equal or greater than zero. Errors on types that Python does not order.
Result<int> order(Budget& budget, const Value& left, const Value& right);
Result<bool> contains(Budget& budget, const Value& container, const Value& item);

// Equality of dictionary keys: scalars, and tuples of them.
bool keys_equal(const Value& left, const Value& right);
bool is_hashable(const Value& value);

}  // namespace pewter::jinja
