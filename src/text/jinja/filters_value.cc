// Filters on single values: defaults, JSON, numbers.
#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <cstdio>

#include "text/jinja/access.h"
#include "text/jinja/arguments.h"
#include "text/jinja/arithmetic.h"
#include "text/jinja/filters.h"
#include "text/jinja/print.h"
#include "text/jinja/text_ops.h"

namespace pewter::jinja {
namespace {

Result<Value> default_filter(const FilterCall& call) {
  TRY_ASSIGN(const auto given, bind(call.arguments, call.name, {"default_value", "boolean"}));
  TRY_ASSIGN(const bool boolean, flag_argument(given[1], false));
  if (!call.input.is_undefined() && (!boolean || call.input.truthy())) return call.input;
  return given[0] != nullptr ? *given[0] : Value::authored("");
}

Result<Value> tojson(const FilterCall& call) {
  TRY_ASSIGN(const auto given, bind(call.arguments, call.name,
                                    {"ensure_ascii", "indent", "separators", "sort_keys"}));
  JsonStyle style;
  TRY_ASSIGN(style.ascii, flag_argument(given[0], false));
  TRY_ASSIGN(style.sort_keys, flag_argument(given[3], false));
  if (given[1] != nullptr && !given[1]->is_none()) {
    style.lines = true;
    style.item_separator = ",";
    if (given[1]->is_string()) {
      style.indent = given[1]->text().bytes;
    } else {
      TRY_ASSIGN(const int64_t width, integer_argument(given[1], call.name, 0));
      if (width > call.budget.limits().max_output_bytes) return call.budget.too_long();
      TRY(call.budget.spend_memory(std::max<int64_t>(width, 0)));
      style.indent.assign(static_cast<size_t>(std::max<int64_t>(width, 0)), ' ');
    }
  }
  if (given[2] != nullptr && !given[2]->is_none()) {
    TRY_ASSIGN(const auto pair, iterate(call.budget, *given[2]));
    if (pair->items.size() != 2) return call.fails("separators are two strings");
    TRY_ASSIGN(const Text* item_separator, text_argument(&pair->items[0], call.name));
    TRY_ASSIGN(const Text* key_separator, text_argument(&pair->items[1], call.name));
    style.item_separator = item_separator->bytes;
    style.key_separator = key_separator->bytes;
  }
  return to_json(call.budget, call.input, style);
}

Result<Value> attr(const FilterCall& call) {
  TRY_ASSIGN(const auto given, bind(call.arguments, call.name, {"name"}, 1));
  TRY_ASSIGN(const Text* name, text_argument(given[0], call.name));
  // Attributes only: a dictionary's keys are none.
  if (call.input.is_dict() && !has_method(call.input, name->view()))
    return Value::undefined(str_cat("no attribute ", quoted(name->view())));
  return attribute(call.budget, call.input, name->view());
}

// An integer of a string, as int() reads it: blanks around, a sign, digits with single underscores.
std::optional<Value> integer_of(std::string_view text, int base) {
  const Text stripped = strip(Text::authored(text), Side::kBoth, nullptr);
  std::string_view rest = stripped.view();
  std::string digits;
  if (rest.starts_with('-') || rest.starts_with('+')) {
    if (rest[0] == '-') digits = "-";
    rest.remove_prefix(1);
  }
  const size_t sign = digits.size();
  if (rest.size() > 2 && rest[0] == '0' && base != 10) {
    const char mark = static_cast<char>(rest[1] | 0x20);
    if ((base == 16 && mark == 'x') || (base == 8 && mark == 'o') || (base == 2 && mark == 'b'))
      rest.remove_prefix(rest.size() > 3 && rest[2] == '_' ? 3 : 2);
  }
  bool after_digit = false;
  for (const char c : rest) {
    if (c == '_' && after_digit) {
      after_digit = false;
      continue;
    }
    const int value = c >= '0' && c <= '9' ? c - '0'
                      : (c | 0x20) >= 'a'  ? (c | 0x20) - 'a' + 10
                                           : 99;
    if (c == '_' || value >= base) return std::nullopt;
    digits += c;
    after_digit = true;
  }
  if (!after_digit) return std::nullopt;
  int64_t number = 0;
  const auto [end, failure] =
      std::from_chars(digits.data(), digits.data() + digits.size(), number, base);
  if (failure == std::errc()) return Value(number);
  if (base != 10) return std::nullopt;
  digits.erase(sign, digits.find_first_not_of('0', sign) - sign);
  return Value(std::make_shared<const std::string>(digits));
}

std::optional<double> float_of(std::string_view text) {
  const Text stripped = strip(Text::authored(text), Side::kBoth, nullptr);
  std::string number;
  for (size_t i = 0; i < stripped.size(); ++i) {
    const char c = stripped.bytes[i];
    const auto digit_at = [&](size_t at) {
      return at < stripped.size() && stripped.bytes[at] >= '0' && stripped.bytes[at] <= '9';
    };
    if (c == '_' && i > 0 && digit_at(i - 1) && digit_at(i + 1)) continue;
    number += c;
  }
  const bool plus = number.size() > 1 && number[0] == '+' && number[1] != '-';
  const char* begin = number.data() + (plus ? 1 : 0);
  const char* const end = number.data() + number.size();
  double value = 0;
  const auto [stop, failure] = std::from_chars(begin, end, value);
  if (failure == std::errc::invalid_argument || stop != end || begin == end) return std::nullopt;
  if (number.find('(') != std::string::npos) return std::nullopt;  // nan(…) is C's, not Python's
  if (failure == std::errc::result_out_of_range) value = std::strtod(begin, nullptr);
  return value;
}

// int() of a float: towards zero, exact.
Value truncated(double value) {
  const double whole = std::trunc(value);
  if (std::fabs(whole) < 0x1p63) return Value(static_cast<int64_t>(whole));
  std::array<char, 400> buffer;
  const int size = std::snprintf(buffer.data(), buffer.size(), "%.0f", whole);
  return Value(std::make_shared<const std::string>(buffer.data(), static_cast<size_t>(size)));
}

Result<Value> int_filter(const FilterCall& call) {
  TRY_ASSIGN(const auto given, bind(call.arguments, call.name, {"default", "base"}));
  TRY_ASSIGN(const int64_t base, integer_argument(given[1], call.name, 10));
  if (base < 2 || base > 36) return call.fails("the base must be in 2 … 36");
  const Value otherwise = given[0] != nullptr ? *given[0] : Value(0);
  const Value& input = call.input;
  if (input.is_undefined()) return undefined_error(input);
  if (input.is_bool()) return Value(input.as_int64());
  if (input.is_integer()) return input;
  std::optional<double> number;
  if (input.is_string()) {
    TRY(call.budget.spend_scan(input.text().size() * 4));
    if (const auto integer = integer_of(input.text().view(), static_cast<int>(base)))
      return *integer;
    number = float_of(input.text().view());
  } else if (input.is_float()) {
    number = input.as_double();
  }
  if (!number || std::isnan(*number)) return otherwise;
  if (std::isinf(*number)) return call.fails("cannot convert float infinity to integer");
  return truncated(*number);
}

Result<Value> float_filter(const FilterCall& call) {
  TRY_ASSIGN(const auto given, bind(call.arguments, call.name, {"default"}));
  if (call.input.is_undefined()) return undefined_error(call.input);
  if (call.input.is_number()) return Value(call.input.as_double());
  std::optional<double> number;
  if (call.input.is_string()) {
    TRY(call.budget.spend_scan(call.input.text().size() * 4));
    number = float_of(call.input.text().view());
  }
  if (number) return Value(*number);
  return given[0] != nullptr ? *given[0] : Value(0.0);
}

Result<Value> abs_filter(const FilterCall& call) {
  TRY(bind(call.arguments, call.name, {}));
  if (call.input.is_undefined()) return undefined_error(call.input);
  if (!call.input.is_number()) return call.fails("wants a number");
  if (call.input.is_float()) return Value(std::fabs(call.input.as_double()));
  const bool negative =
      call.input.is_int64() ? call.input.as_int64() < 0 : call.input.big_digits().starts_with('-');
  return negative ? negate(call.input) : positive(call.input);
}

Result<Value> round_filter(const FilterCall& call) {
  TRY_ASSIGN(const auto given, bind(call.arguments, call.name, {"precision", "method"}));
  TRY_ASSIGN(const int64_t precision, integer_argument(given[0], call.name, 0));
  TRY_ASSIGN(const Text* method, text_argument(given[1], call.name));
  const std::string_view how = method == nullptr ? "common" : method->view();
  if (how != "common" && how != "ceil" && how != "floor")
    return call.fails("method must be common, ceil or floor");
  if (call.input.is_undefined()) return undefined_error(call.input);
  if (!call.input.is_number()) return call.fails("wants a number");
  if (precision < -300 || precision > 300) return call.fails("the precision is out of range");
  const double value = call.input.as_double();
  if (how != "common") {
    const double scale = std::pow(10.0, static_cast<double>(precision));
    if (!std::isfinite(value)) return call.fails("wants a finite number");
    const double scaled = value * scale;
    return Value((how == "ceil" ? std::ceil(scaled) : std::floor(scaled)) / scale);
  }
  if (call.input.is_integer()) {
    if (precision >= 0) return positive(call.input);
    if (!call.input.is_int64()) return call.fails("wants a number of 64 bits");
    // Half to even, in integers.
    int64_t scale = 1;
    for (int64_t i = 0; i < -precision; ++i)
      if (__builtin_mul_overflow(scale, int64_t{10}, &scale)) return Value(0);
    const int64_t number = call.input.as_int64();
    int64_t rest = number % scale;
    if (rest < 0) rest += scale;
    const bool up =
        rest > scale - rest || (rest == scale - rest && ((number - rest) / scale) % 2 != 0);
    return binary(call.budget, BinaryOp::kAdd, Value(number), Value(up ? scale - rest : -rest));
  }
  if (!std::isfinite(value)) return Value(value);
  if (precision >= 0) {  // printing rounds the exact value half to even, which is what Python does
    std::array<char, 700> buffer;
    std::snprintf(buffer.data(), buffer.size(), "%.*f", static_cast<int>(precision), value);
    return Value(std::strtod(buffer.data(), nullptr));
  }
  const double scale = std::pow(10.0, static_cast<double>(-precision));
  return Value(std::nearbyint(value / scale) * scale);
}

constexpr FilterEntry kFilters[] = {
    {"default", default_filter}, {"d", default_filter},
    {"tojson", tojson},          {"attr", attr},
    {"int", int_filter},         {"float", float_filter},
    {"abs", abs_filter},         {"round", round_filter},
};

}  // namespace

FilterFunction find_value_filter(std::string_view name) {
  for (const FilterEntry& entry : kFilters)
    if (entry.name == name) return entry.function;
  return nullptr;
}

}  // namespace pewter::jinja
