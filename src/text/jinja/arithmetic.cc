#include "text/jinja/arithmetic.h"

#include <cmath>

namespace pewter::jinja {
namespace {

constexpr std::string_view kSpelling[] = {"+", "-", "*", "/", "//", "%", "**"};

Error type_error(BinaryOp op, const Value& left, const Value& right) {
  return Error{ErrorCode::kUnsupported,
               str_cat("unsupported operand type(s) for ", kSpelling[static_cast<size_t>(op)],
                       ": '", left.type_name(), "' and '", right.type_name(), "'")};
}

Error zero_division() { return Error{ErrorCode::kUnsupported, "division by zero"}; }
Error overflow() { return Error{ErrorCode::kUnsupported, "the result is an integer past 64 bits"}; }

struct Quotient {
  int64_t quotient, remainder;
};
// Rounded down; the remainder has the divisor's sign. INT64_MIN / -1 is the caller's to exclude.
Quotient floor_divide(int64_t a, int64_t b) {
  Quotient result{a / b, a % b};
  if (result.remainder != 0 && (result.remainder < 0) != (b < 0)) {
    result.remainder += b;
    result.quotient -= 1;
  }
  return result;
}

double float_modulo(double a, double b) {
  const double remainder = std::fmod(a, b);
  if (remainder == 0.0) return std::copysign(0.0, b);
  return (remainder < 0) != (b < 0) ? remainder + b : remainder;
}

double float_floor_divide(double a, double b) {
  // Built from the remainder so that a == (a // b) * b + a % b as nearly as it can be.
  const double remainder = std::fmod(a, b);
  double quotient = (a - remainder) / b;
  if (remainder != 0.0 && (remainder < 0) != (b < 0)) quotient -= 1.0;
  if (quotient == 0.0) return std::copysign(0.0, a / b);
  const double whole = std::floor(quotient);
  return quotient - whole > 0.5 ? whole + 1.0 : whole;
}

Result<Value> float_power(double base, double exponent) {
  if (base == 0.0 && exponent < 0) return zero_division();
  const double result = std::pow(base, exponent);
  if (std::isnan(result) && !std::isnan(base) && !std::isnan(exponent))
    return Error{ErrorCode::kUnsupported, "a power that is a complex number"};
  if (std::isinf(result) && std::isfinite(base) && std::isfinite(exponent))
    return Error{ErrorCode::kUnsupported, "numerical result out of range"};
  return Value(result);
}

Result<Value> integer_power(int64_t base, int64_t exponent) {
  if (exponent < 0) return float_power(static_cast<double>(base), static_cast<double>(exponent));
  int64_t result = 1;
  while (exponent > 0) {
    if ((exponent & 1) != 0 && __builtin_mul_overflow(result, base, &result)) return overflow();
    exponent >>= 1;
    if (exponent > 0 && __builtin_mul_overflow(base, base, &base)) return overflow();
  }
  return Value(result);
}

Result<Value> integer_binary(BinaryOp op, int64_t a, int64_t b) {
  int64_t result = 0;
  switch (op) {
    case BinaryOp::kAdd:
      if (__builtin_add_overflow(a, b, &result)) return overflow();
      return Value(result);
    case BinaryOp::kSubtract:
      if (__builtin_sub_overflow(a, b, &result)) return overflow();
      return Value(result);
    case BinaryOp::kMultiply:
      if (__builtin_mul_overflow(a, b, &result)) return overflow();
      return Value(result);
    case BinaryOp::kDivide:
      if (b == 0) return zero_division();
      // One rounding for every int64: a long double holds them exactly.
      return Value(static_cast<double>(static_cast<long double>(a) / static_cast<long double>(b)));
    case BinaryOp::kFloorDivide:
    case BinaryOp::kModulo:
      if (b == 0) return zero_division();
      if (b == -1) {
        if (op == BinaryOp::kModulo) return Value(int64_t{0});
        if (__builtin_sub_overflow(int64_t{0}, a, &result)) return overflow();
        return Value(result);
      }
      return Value(op == BinaryOp::kModulo ? floor_divide(a, b).remainder
                                           : floor_divide(a, b).quotient);
    case BinaryOp::kPower:
      return integer_power(a, b);
  }
  return Value();
}

Result<Value> float_binary(BinaryOp op, double a, double b) {
  switch (op) {
    case BinaryOp::kAdd:
      return Value(a + b);
    case BinaryOp::kSubtract:
      return Value(a - b);
    case BinaryOp::kMultiply:
      return Value(a * b);
    case BinaryOp::kPower:
      return float_power(a, b);
    default:
      break;
  }
  if (b == 0.0) return zero_division();
  if (op == BinaryOp::kDivide) return Value(a / b);
  return Value(op == BinaryOp::kModulo ? float_modulo(a, b) : float_floor_divide(a, b));
}

Result<Value> add_texts(Budget& budget, const Text& left, const Text& right) {
  TextBuilder out(budget.limits().max_output_bytes);
  const bool markup = left.markup || right.markup;
  out.append(markup ? left.escaped() : left);
  out.append(markup ? right.escaped() : right);
  if (out.overflowed()) return budget.too_long();
  Text text = out.take();
  text.markup = markup;
  return make_text(budget, std::move(text));
}

Result<Value> repeat(Budget& budget, const Value& value, int64_t count) {
  if (value.is_string()) {
    TextBuilder out(budget.limits().max_output_bytes);
    out.append_repeated(value.text(), count);
    if (out.overflowed()) return budget.too_long();
    Text text = out.take();
    text.markup = value.text().markup;
    return make_text(budget, std::move(text));
  }
  const auto& items = value.sequence()->items;
  std::vector<Value> repeated;
  if (count > 0 && !items.empty()) {
    const auto bytes = static_cast<int64_t>(items.size() * sizeof(Value));
    const int64_t most = budget.limits().max_memory_bytes;
    TRY(budget.spend_memory(count > most / bytes ? most + 1 : count * bytes));
    for (int64_t i = 0; i < count; ++i) repeated.insert(repeated.end(), items.begin(), items.end());
  }
  return make_sequence(budget, value.sequence()->kind, std::move(repeated));
}

bool is_list_or_tuple(const Value& value) {
  return value.is_sequence() && (value.sequence()->kind == Sequence::Kind::kList ||
                                 value.sequence()->kind == Sequence::Kind::kTuple);
}

}  // namespace

Error undefined_error(const Value& value) {
  return Error{ErrorCode::kUnsupported,
               value.undefined_reason() ? *value.undefined_reason() : "a value is undefined"};
}

Result<Value> binary(Budget& budget, BinaryOp op, const Value& left, const Value& right) {
  if (left.is_string() && op == BinaryOp::kModulo)
    return percent_format(budget, left.text(), right);
  if (left.is_undefined()) return undefined_error(left);
  if (right.is_undefined()) return undefined_error(right);
  if (left.is_number() && right.is_number()) {
    if (left.is_float() || right.is_float())
      return float_binary(op, left.as_double(), right.as_double());
    if (!left.is_int64() || !right.is_int64()) return overflow();
    return integer_binary(op, left.as_int64(), right.as_int64());
  }
  if (op == BinaryOp::kAdd) {
    if (left.is_string() && right.is_string()) return add_texts(budget, left.text(), right.text());
    if (is_list_or_tuple(left) && is_list_or_tuple(right) &&
        left.sequence()->kind == right.sequence()->kind) {
      TRY(budget.spend_memory(static_cast<int64_t>(
          (left.sequence()->items.size() + right.sequence()->items.size()) * sizeof(Value))));
      std::vector<Value> items = left.sequence()->items;
      items.insert(items.end(), right.sequence()->items.begin(), right.sequence()->items.end());
      return make_sequence(budget, left.sequence()->kind, std::move(items));
    }
  }
  if (op == BinaryOp::kMultiply) {
    const auto repeatable = [](const Value& v) { return v.is_string() || is_list_or_tuple(v); };
    if (repeatable(left) && right.is_int64()) return repeat(budget, left, right.as_int64());
    if (repeatable(right) && left.is_int64()) return repeat(budget, right, left.as_int64());
  }
  return type_error(op, left, right);
}

Result<Value> negate(const Value& value) {
  if (value.is_undefined()) return undefined_error(value);
  if (value.is_float()) return Value(-value.as_double());
  if (value.kind() == Value::Kind::kBigInteger) {
    const std::string& digits = value.big_digits();
    if (digits == "9223372036854775808") return Value(INT64_MIN);
    return Value(
        std::make_shared<const std::string>(digits[0] == '-' ? digits.substr(1) : "-" + digits));
  }
  if (value.is_int64()) {
    if (value.as_int64() == INT64_MIN)
      return Value(std::make_shared<const std::string>("9223372036854775808"));
    return Value(-value.as_int64());
  }
  return Error{ErrorCode::kUnsupported,
               str_cat("bad operand type for unary -: '", value.type_name(), "'")};
}

Result<Value> positive(const Value& value) {
  if (value.is_undefined()) return undefined_error(value);
  if (value.is_bool()) return Value(value.as_int64());
  if (value.is_number()) return value;
  return Error{ErrorCode::kUnsupported,
               str_cat("bad operand type for unary +: '", value.type_name(), "'")};
}

}  // namespace pewter::jinja
