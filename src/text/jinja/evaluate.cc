// Expressions.
#include "text/jinja/access.h"
#include "text/jinja/arithmetic.h"
#include "text/jinja/depth.h"
#include "text/jinja/globals.h"
#include "text/jinja/interpreter.h"
#include "text/jinja/print.h"

namespace pewter::jinja {

Result<Value> Interpreter::evaluate(const Expression& expression) {
  const Depth depth(*this);
  Status allowed = depth.check();
  if (allowed) allowed = budget_.spend_steps(1);
  Result<Value> value = allowed ? evaluate_kind(expression) : Result<Value>(allowed.error());
  if (!value && failed_line_ == 0) failed_line_ = expression.line;
  return value;
}

Result<Value> Interpreter::evaluate_kind(const Expression& expression) {
  switch (expression.kind) {
    case Expression::Kind::kConstant:
      return expression.constant;
    case Expression::Kind::kName:
      return evaluate_name(expression);
    case Expression::Kind::kAnd:
    case Expression::Kind::kOr:
      return evaluate_logical(expression);
    case Expression::Kind::kConditional:
      return evaluate_conditional(expression);
    case Expression::Kind::kConcat:
      return evaluate_concat(expression);
    case Expression::Kind::kCompare:
      return evaluate_compare(expression);
    case Expression::Kind::kSlice:
      return evaluate_slice(expression);
    case Expression::Kind::kDict:
      return evaluate_dict(expression);
    case Expression::Kind::kCall:
      return evaluate_call(expression);
    case Expression::Kind::kFilter:
      return evaluate_filter(expression, nullptr);
    case Expression::Kind::kTest:
      return evaluate_test(expression);
    default:
      break;
  }
  TRY_ASSIGN(std::vector<Value> operands, evaluate_operands(expression));
  switch (expression.kind) {
    case Expression::Kind::kList:
      return make_sequence(budget_, Sequence::Kind::kList, std::move(operands));
    case Expression::Kind::kTuple:
      return make_sequence(budget_, Sequence::Kind::kTuple, std::move(operands));
    case Expression::Kind::kNot:
      return Value(!operands[0].truthy());
    case Expression::Kind::kNegate:
      return negate(operands[0]);
    case Expression::Kind::kPlus:
      return positive(operands[0]);
    case Expression::Kind::kBinary:
      return binary(budget_, expression.binary_op, operands[0], operands[1]);
    case Expression::Kind::kAttribute:
      return attribute(budget_, operands[0], expression.name);
    default:
      return item(budget_, operands[0], operands[1]);
  }
}

Result<std::vector<Value>> Interpreter::evaluate_operands(const Expression& expression) {
  std::vector<Value> values;
  values.reserve(expression.operands.size());
  for (const auto& operand : expression.operands) {
    TRY_ASSIGN(Value value, evaluate(*operand));
    values.push_back(std::move(value));
  }
  return values;
}

Result<Value> Interpreter::evaluate_name(const Expression& expression) {
  if (const Value* found = scope_->find(expression.name)) return *found;
  if (const auto function = find_global(expression.name)) return Value(*function);
  return Value::undefined(str_cat(quoted(expression.name), " is undefined"));
}

Result<Value> Interpreter::evaluate_dict(const Expression& expression) {
  TRY_ASSIGN(std::vector<Value> operands, evaluate_operands(expression));
  std::vector<Dict::Item> items;
  for (size_t i = 0; i < operands.size(); i += 2) {
    if (!is_hashable(operands[i]))
      return Error{ErrorCode::kUnsupported,
                   str_cat("unhashable type: '", operands[i].type_name(), "'")};
    items.emplace_back(std::move(operands[i]), std::move(operands[i + 1]));
  }
  return make_dict(budget_, std::move(items));
}

Result<Value> Interpreter::evaluate_logical(const Expression& expression) {
  TRY_ASSIGN(Value left, evaluate(*expression.operands[0]));
  if (left.truthy() == (expression.kind == Expression::Kind::kOr)) return left;
  return evaluate(*expression.operands[1]);
}

Result<Value> Interpreter::evaluate_conditional(const Expression& expression) {
  TRY_ASSIGN(const Value condition, evaluate(*expression.operands[0]));
  if (condition.truthy()) return evaluate(*expression.operands[1]);
  if (expression.operands[2] != nullptr) return evaluate(*expression.operands[2]);
  return Value::undefined("the inline if-expression evaluated to false and no else was given");
}

Result<Value> Interpreter::evaluate_concat(const Expression& expression) {
  TextBuilder out(budget_.limits().max_output_bytes);
  for (const auto& operand : expression.operands) {
    TRY_ASSIGN(const Value value, evaluate(*operand));
    TRY(append_str(budget_, out, value));
  }
  return make_text(budget_, out);
}

Result<Value> Interpreter::evaluate_compare(const Expression& expression) {
  TRY_ASSIGN(Value left, evaluate(*expression.operands[0]));
  for (size_t i = 0; i < expression.compare_ops.size(); ++i) {
    TRY_ASSIGN(Value right, evaluate(*expression.operands[i + 1]));
    TRY_ASSIGN(const bool holds, compare(budget_, expression.compare_ops[i], left, right));
    if (!holds) return Value(false);
    left = std::move(right);
  }
  return Value(true);
}

Result<Value> Interpreter::evaluate_slice(const Expression& expression) {
  TRY_ASSIGN(const Value object, evaluate(*expression.operands[0]));
  SliceBounds bounds;
  Value* const each[] = {&bounds.start, &bounds.stop, &bounds.step};
  for (size_t i = 0; i < 3; ++i) {
    if (expression.operands[i + 1] == nullptr) continue;
    TRY_ASSIGN(*each[i], evaluate(*expression.operands[i + 1]));
  }
  return slice(budget_, object, bounds);
}

// In a filter block the innermost filter has no operand; `input` stands for it.
Result<Value> Interpreter::evaluate_filter(const Expression& expression, const Value* input) {
  Value value;
  const Expression* operand = expression.operands[0].get();
  if (operand == nullptr) {
    CHECK(input != nullptr, "a filter without input");
    value = *input;
  } else if (input != nullptr) {
    TRY_ASSIGN(value, evaluate_filter(*operand, input));
  } else {
    TRY_ASSIGN(value, evaluate(*operand));
  }
  TRY_ASSIGN(const Arguments arguments, evaluate_arguments(expression.arguments));
  return apply_filter(expression.name, value, arguments);
}

Result<Value> Interpreter::evaluate_test(const Expression& expression) {
  TRY_ASSIGN(const Value value, evaluate(*expression.operands[0]));
  TRY_ASSIGN(const Arguments arguments, evaluate_arguments(expression.arguments));
  TRY_ASSIGN(const bool holds, apply_test(expression.name, value, arguments));
  return Value(holds);
}

}  // namespace pewter::jinja
