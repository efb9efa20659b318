// The language's tests (x is defined), and the look-up of filters and tests by name.
#include "text/jinja/access.h"
#include "text/jinja/arguments.h"
#include "text/jinja/arithmetic.h"
#include "text/jinja/compare.h"
#include "text/jinja/filters.h"
#include "text/jinja/print.h"

namespace pewter::jinja {
namespace {

using Kind = Value::Kind;

struct TestCall {
  Budget& budget;
  std::string_view name;
  const Value& value;
  const std::vector<const Value*>& given;
};
using TestFunction = Result<bool> (*)(const TestCall&);

Result<bool> is_divisible(const TestCall& call) {
  TRY_ASSIGN(const Value rest, binary(call.budget, BinaryOp::kModulo, call.value, *call.given[0]));
  return equal(call.budget, rest, Value(0));
}

Result<bool> has_parity(const TestCall& call) {
  if (call.value.is_string()) return Error{ErrorCode::kUnsupported, "a string is not odd or even"};
  TRY_ASSIGN(const Value rest, binary(call.budget, BinaryOp::kModulo, call.value, Value(2)));
  return equal(call.budget, rest, Value(call.name == "odd" ? 1 : 0));
}

Result<bool> is_sequence(const TestCall& call) {
  const Value& value = call.value;
  return value.is_undefined() || value.is_string() || value.is_dict() ||
         (value.is_sequence() && value.sequence()->has_index());
}

Result<bool> has_case(const TestCall& call) {
  TRY_ASSIGN(const Value text, str(call.budget, call.value));
  TRY_ASSIGN(const Value result,
             call_string_method(call.budget, text.text(),
                                call.name == "upper" ? "isupper" : "islower", Arguments{}));
  return result.truthy();
}

Result<bool> is_same(const TestCall& call) {
  const Value &a = call.value, &b = *call.given[0];
  if (a.kind() != b.kind()) return false;
  if (a.is_dict()) return &a.dict() == &b.dict();
  if (a.is_sequence()) return a.sequence() == b.sequence();
  return equal(call.budget, a, b);
}

template <CompareOp op>
Result<bool> compares(const TestCall& call) {
  return compare(call.budget, op, call.value, *call.given[0]);
}

Result<bool> names_filter(const TestCall& call) {
  return call.value.is_string() && find_filter(call.value.text().view()) != nullptr;
}
Result<bool> names_test(const TestCall& call) {
  return call.value.is_string() && has_test(call.value.text().view());
}

struct TestEntry {
  std::string_view name;
  size_t arguments;
  TestFunction function;
};

constexpr TestEntry kTests[] = {
    {"defined", 0, [](const TestCall& c) -> Result<bool> { return !c.value.is_undefined(); }},
    {"undefined", 0, [](const TestCall& c) -> Result<bool> { return c.value.is_undefined(); }},
    {"none", 0, [](const TestCall& c) -> Result<bool> { return c.value.is_none(); }},
    {"string", 0, [](const TestCall& c) -> Result<bool> { return c.value.is_string(); }},
    {"mapping", 0, [](const TestCall& c) -> Result<bool> { return c.value.is_dict(); }},
    {"iterable", 0, [](const TestCall& c) -> Result<bool> { return is_iterable(c.value); }},
    {"sequence", 0, is_sequence},
    {"number", 0, [](const TestCall& c) -> Result<bool> { return c.value.is_number(); }},
    {"integer", 0,
     [](const TestCall& c) -> Result<bool> { return c.value.is_integer() && !c.value.is_bool(); }},
    {"float", 0, [](const TestCall& c) -> Result<bool> { return c.value.is_float(); }},
    {"boolean", 0, [](const TestCall& c) -> Result<bool> { return c.value.is_bool(); }},
    {"true", 0,
     [](const TestCall& c) -> Result<bool> { return c.value.is_bool() && c.value.as_bool(); }},
    {"false", 0,
     [](const TestCall& c) -> Result<bool> { return c.value.is_bool() && !c.value.as_bool(); }},
    {"callable", 0,
     [](const TestCall& c) -> Result<bool> {
       return c.value.is_callable() || c.value.is_undefined() || c.value.kind() == Kind::kLoop;
     }},
    {"escaped", 0,
     [](const TestCall& c) -> Result<bool> {
       return c.value.is_string() && c.value.text().markup;
     }},
    {"odd", 0, has_parity},
    {"even", 0, has_parity},
    {"upper", 0, has_case},
    {"lower", 0, has_case},
    {"filter", 0, names_filter},
    {"test", 0, names_test},
    {"divisibleby", 1, is_divisible},
    {"sameas", 1, is_same},
    {"in", 1, compares<CompareOp::kIn>},
    {"==", 1, compares<CompareOp::kEqual>},
    {"eq", 1, compares<CompareOp::kEqual>},
    {"equalto", 1, compares<CompareOp::kEqual>},
    {"!=", 1, compares<CompareOp::kNotEqual>},
    {"ne", 1, compares<CompareOp::kNotEqual>},
    {"<", 1, compares<CompareOp::kLess>},
    {"lt", 1, compares<CompareOp::kLess>},
    {"lessthan", 1, compares<CompareOp::kLess>},
    {"<=", 1, compares<CompareOp::kLessEqual>},
    {"le", 1, compares<CompareOp::kLessEqual>},
    {">", 1, compares<CompareOp::kGreater>},
    {"gt", 1, compares<CompareOp::kGreater>},
    {"greaterthan", 1, compares<CompareOp::kGreater>},
    {">=", 1, compares<CompareOp::kGreaterEqual>},
    {"ge", 1, compares<CompareOp::kGreaterEqual>},
};

const TestEntry* find_test(std::string_view name) {
  for (const TestEntry& entry : kTests)
    if (entry.name == name) return &entry;
  return nullptr;
}

}  // namespace

FilterFunction find_filter(std::string_view name) {
  for (const auto find :
       {find_text_filter, find_sequence_filter, find_select_filter, find_value_filter})
    if (const FilterFunction function = find(name)) return function;
  return nullptr;
}

bool has_test(std::string_view name) { return find_test(name) != nullptr; }

Result<Value> Interpreter::apply_filter(std::string_view name, const Value& input,
                                        const Arguments& arguments) {
  TRY(budget_.spend_steps(1));
  const FilterFunction function = find_filter(name);
  if (function == nullptr)
    return Error{ErrorCode::kUnsupported, str_cat("No filter named ", quoted(name), ".")};
  return function(FilterCall{*this, budget_, name, input, arguments});
}

Result<bool> Interpreter::apply_test(std::string_view name, const Value& value,
                                     const Arguments& arguments) {
  TRY(budget_.spend_steps(1));
  const TestEntry* entry = find_test(name);
  if (entry == nullptr)
    return Error{ErrorCode::kUnsupported, str_cat("No test named ", quoted(name), ".")};
  static const std::vector<std::string_view> kNone, kOther = {"other"};
  TRY_ASSIGN(const auto given,
             bind(arguments, name, entry->arguments == 0 ? kNone : kOther, entry->arguments));
  return entry->function(TestCall{budget_, name, value, given});
}

}  // namespace pewter::jinja
