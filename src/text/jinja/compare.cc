#include "text/jinja/compare.h"

#include <algorithm>
#include <cmath>

namespace pewter::jinja {
namespace {

using Kind = Value::Kind;

Error not_ordered(const Value& left, const Value& right) {
  return Error{ErrorCode::kUnsupported, str_cat("'<' is not supported between '", left.type_name(),
                                                "' and '", right.type_name(), "'")};
}

int sign(bool less, bool greater) { return less ? -1 : greater ? 1 : 0; }

// Digits of big integers: outside int64 by construction, so their sign decides against an int64.
int order_integers(const Value& left, const Value& right) {
  const bool left_big = left.kind() == Kind::kBigInteger;
  const bool right_big = right.kind() == Kind::kBigInteger;
  if (!left_big && !right_big)
    return sign(left.as_int64() < right.as_int64(), left.as_int64() > right.as_int64());
  if (!right_big) return left.big_digits()[0] == '-' ? -1 : 1;
  if (!left_big) return right.big_digits()[0] == '-' ? 1 : -1;
  const std::string &a = left.big_digits(), &b = right.big_digits();
  const bool a_negative = a[0] == '-', b_negative = b[0] == '-';
  if (a_negative != b_negative) return a_negative ? -1 : 1;
  const int by_size =
      a.size() != b.size() ? sign(a.size() < b.size(), a.size() > b.size()) : a.compare(b);
  return a_negative ? -by_size : by_size;
}

// 2 when the two are unordered (not a number).
int order_numbers(const Value& left, const Value& right) {
  if (left.is_integer() && right.is_integer()) return order_integers(left, right);
  const double a = left.as_double(), b = right.as_double();
  if (std::isnan(a) || std::isnan(b)) return 2;
  return sign(a<b, a> b);
}

bool same_sequence_type(const Sequence& a, const Sequence& b) {
  return a.kind == b.kind && a.kind != Sequence::Kind::kGenerator;
}

Result<bool> equal_dicts(Budget& budget, const Dict& left, const Dict& right) {
  if (left.items.size() != right.items.size()) return false;
  for (const auto& [key, value] : left.items) {
    const Value* other = right.find(key);
    if (other == nullptr) return false;
    TRY_ASSIGN(const bool same, equal(budget, value, *other));
    if (!same) return false;
  }
  return true;
}

}  // namespace

Result<bool> equal(Budget& budget, const Value& left, const Value& right) {
  TRY(budget.spend_steps(1));
  if (left.is_number() && right.is_number()) return order_numbers(left, right) == 0;
  if (left.kind() != right.kind()) return false;
  switch (left.kind()) {
    case Kind::kUndefined:
    case Kind::kNone:
      return true;
    case Kind::kString:
      TRY(budget.spend_scan(left.text().size()));
      return left.text().bytes == right.text().bytes;
    case Kind::kSequence: {
      const Sequence &a = *left.sequence(), &b = *right.sequence();
      if (&a == &b) return true;
      if (!same_sequence_type(a, b) || a.items.size() != b.items.size()) return false;
      for (size_t i = 0; i < a.items.size(); ++i) {
        TRY_ASSIGN(const bool same, equal(budget, a.items[i], b.items[i]));
        if (!same) return false;
      }
      return true;
    }
    case Kind::kDict:
      return equal_dicts(budget, left.dict(), right.dict());
    case Kind::kNamespace:
      return left.as_namespace() == right.as_namespace();
    case Kind::kLoop:
      return left.loop() == right.loop();
    case Kind::kMacro:
      return left.macro() == right.macro();
    case Kind::kGlobalFunction:
      return left.global_function() == right.global_function();
    default:
      return false;
  }
}

Result<int> order(Budget& budget, const Value& left, const Value& right) {
  TRY(budget.spend_steps(1));
  if (left.is_number() && right.is_number()) return order_numbers(left, right);
  if (left.is_string() && right.is_string()) {
    TRY(budget.spend_scan(left.text().size()));
    // UTF-8 bytes order as code points do.
    const int by_bytes = left.text().bytes.compare(right.text().bytes);
    return sign(by_bytes < 0, by_bytes > 0);
  }
  if (left.is_sequence() && right.is_sequence() &&
      same_sequence_type(*left.sequence(), *right.sequence()) &&
      (left.sequence()->kind == Sequence::Kind::kList ||
       left.sequence()->kind == Sequence::Kind::kTuple)) {
    const auto &a = left.sequence()->items, &b = right.sequence()->items;
    for (size_t i = 0; i < std::min(a.size(), b.size()); ++i) {
      TRY_ASSIGN(const bool same, equal(budget, a[i], b[i]));
      if (!same) return order(budget, a[i], b[i]);
    }
    return sign(a.size() < b.size(), a.size() > b.size());
  }
  return not_ordered(left, right);
}

Result<bool> contains(Budget& budget, const Value& container, const Value& item) {
  TRY(budget.spend_steps(1));
  switch (container.kind()) {
    case Kind::kUndefined:
      return false;
    case Kind::kString: {
      if (!item.is_string())
        return Error{
            ErrorCode::kUnsupported,
            str_cat("'in <string>' requires a string on its left, not ", item.type_name())};
      TRY(budget.spend_scan(container.text().size()));
      return find_bytes(container.text().view(), item.text().view()) != std::string_view::npos;
    }
    case Kind::kDict:
      if (!is_hashable(item))
        return Error{ErrorCode::kUnsupported, str_cat("unhashable type: '", item.type_name(), "'")};
      return container.dict().find(item) != nullptr;
    case Kind::kSequence: {
      const Sequence& sequence = *container.sequence();
      if (sequence.consumed) return false;
      if (sequence.kind == Sequence::Kind::kGenerator) sequence.consumed = true;
      for (const Value& element : sequence.items) {
        TRY_ASSIGN(const bool same, equal(budget, element, item));
        if (same) return true;
      }
      return false;
    }
    default:
      return Error{ErrorCode::kUnsupported,
                   str_cat("argument of type '", container.type_name(), "' is not iterable")};
  }
}

Result<bool> compare(Budget& budget, CompareOp op, const Value& left, const Value& right) {
  switch (op) {
    case CompareOp::kEqual:
      return equal(budget, left, right);
    case CompareOp::kNotEqual: {
      TRY_ASSIGN(const bool same, equal(budget, left, right));
      return !same;
    }
    case CompareOp::kIn:
      return contains(budget, right, left);
    case CompareOp::kNotIn: {
      TRY_ASSIGN(const bool found, contains(budget, right, left));
      return !found;
    }
    default:
      break;
  }
  for (const Value* side : {&left, &right})
    if (side->is_undefined())
      return Error{ErrorCode::kUnsupported,
                   side->undefined_reason() ? *side->undefined_reason() : "a value is undefined"};
  TRY_ASSIGN(const int result, order(budget, left, right));
  if (result == 2) return false;
  switch (op) {
    case CompareOp::kLess:
      return result < 0;
    case CompareOp::kLessEqual:
      return result <= 0;
    case CompareOp::kGreater:
      return result > 0;
    default:
      return result >= 0;
  }
}

namespace {

// Tuples may share parts and then hold exponentially many; left counts those still to be seen.
bool is_hashable_within(const Value& value, int& left) {
  if (value.is_dict() || --left < 0) return false;
  if (!value.is_sequence()) return true;
  const Sequence& sequence = *value.sequence();
  if (sequence.kind == Sequence::Kind::kList) return false;
  if (sequence.kind != Sequence::Kind::kTuple) return true;
  for (const Value& item : sequence.items)
    if (!is_hashable_within(item, left)) return false;
  return true;
}

}  // namespace

bool is_hashable(const Value& value) {
  int left = 10'000;
  return is_hashable_within(value, left);
}

bool keys_equal(const Value& left, const Value& right) {
  // Keys are short; a budget large enough for any of them cannot fail on a scalar, and a tuple that
  // exhausts it is simply not found.
  Budget budget(RenderLimits{.max_steps = 10'000});
  const Result<bool> same = equal(budget, left, right);
  return same.has_value() && *same;
}

}  // namespace pewter::jinja
