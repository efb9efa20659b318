// Expressions. Levels of binding, loosest first: inline if, or, and, not, comparison, + and -, ~,
// * / // %, **, sign, then what follows a value: subscripts, calls, filters, tests. As in Jinja, **
// groups to the left and a sign binds tighter than it.
#include <algorithm>
#include <array>
#include <charconv>

#include "text/jinja/parser.h"

namespace pewter::jinja {
namespace {

constexpr int kMaxDepth = 150;  // of an expression's tree

}  // namespace

std::unique_ptr<Expression> Parser::node(Expression::Kind kind) const {
  auto expression = std::make_unique<Expression>();
  expression->kind = kind;
  expression->line = peek().line;
  return expression;
}

Result<ExpressionPtr> Parser::finish(std::unique_ptr<Expression> expression) const {
  int depth = 0;
  const auto add = [&](const ExpressionPtr& child) {
    if (child != nullptr) depth = std::max(depth, child->depth);
  };
  for (const auto& operand : expression->operands) add(operand);
  for (const auto& argument : expression->arguments.positional) add(argument);
  for (const auto& [name, argument] : expression->arguments.named) add(argument);
  add(expression->arguments.star);
  add(expression->arguments.double_star);
  expression->depth = depth + 1;
  if (expression->depth > kMaxDepth) return error("an expression is nested too deeply");
  return ExpressionPtr(std::move(expression));
}

bool Parser::at_tuple_end() const {
  switch (peek().kind) {
    case Token::Kind::kOutputEnd:
    case Token::Kind::kBlockEnd:
      return true;
    default:
      return at_operator(")") || at_name("recursive");
  }
}

Result<ExpressionPtr> Parser::expression_or_tuple(Conditional conditional) {
  TRY_ASSIGN(ExpressionPtr first, expression(conditional));
  if (!at_operator(",")) return first;
  auto tuple = node(Expression::Kind::kTuple);
  tuple->operands.push_back(std::move(first));
  while (skip_operator(",")) {
    if (at_tuple_end()) break;
    TRY_ASSIGN(ExpressionPtr item, expression(conditional));
    tuple->operands.push_back(std::move(item));
  }
  return finish(std::move(tuple));
}

Result<ExpressionPtr> Parser::tuple_in_parentheses() {
  TRY(expect_operator("("));
  if (skip_operator(")")) return finish(node(Expression::Kind::kTuple));
  TRY_ASSIGN(ExpressionPtr inside, expression_or_tuple(Conditional::kAllowed));
  TRY(expect_operator(")"));
  return inside;
}

Result<ExpressionPtr> Parser::expression(Conditional conditional) {
  // Every way an expression can hold itself passes here or through unary().
  struct Leave {
    int& level;
    ~Leave() { --level; }
  } const leave{nesting_};
  if (++nesting_ > kMaxDepth) return error("an expression is nested too deeply");
  TRY_ASSIGN(ExpressionPtr value, logical(true));
  while (conditional == Conditional::kAllowed && skip_name("if")) {
    auto choice = node(Expression::Kind::kConditional);
    TRY_ASSIGN(ExpressionPtr condition, logical(true));
    choice->operands.push_back(std::move(condition));
    choice->operands.push_back(std::move(value));
    ExpressionPtr otherwise;
    if (skip_name("else")) {
      TRY_ASSIGN(otherwise, expression());
    }
    choice->operands.push_back(std::move(otherwise));
    TRY_ASSIGN(value, finish(std::move(choice)));
  }
  return value;
}

Result<ExpressionPtr> Parser::logical(bool is_or) {
  TRY_ASSIGN(ExpressionPtr left, is_or ? logical(false) : negation());
  while (skip_name(is_or ? "or" : "and")) {
    auto both = node(is_or ? Expression::Kind::kOr : Expression::Kind::kAnd);
    TRY_ASSIGN(ExpressionPtr right, is_or ? logical(false) : negation());
    both->operands.push_back(std::move(left));
    both->operands.push_back(std::move(right));
    TRY_ASSIGN(left, finish(std::move(both)));
  }
  return left;
}

Result<ExpressionPtr> Parser::negation() {
  int count = 0;
  while (skip_name("not")) ++count;
  TRY_ASSIGN(ExpressionPtr value, comparison());
  for (; count > 0; --count) {
    auto negated = node(Expression::Kind::kNot);
    negated->operands.push_back(std::move(value));
    TRY_ASSIGN(value, finish(std::move(negated)));
  }
  return value;
}

Result<ExpressionPtr> Parser::comparison() {
  static constexpr std::array<std::pair<std::string_view, CompareOp>, 6> kOps = {{
      {"==", CompareOp::kEqual},
      {"!=", CompareOp::kNotEqual},
      {"<", CompareOp::kLess},
      {"<=", CompareOp::kLessEqual},
      {">", CompareOp::kGreater},
      {">=", CompareOp::kGreaterEqual},
  }};
  TRY_ASSIGN(ExpressionPtr first, arithmetic(0));
  auto chain = node(Expression::Kind::kCompare);
  chain->operands.push_back(std::move(first));
  while (true) {
    bool found = false;
    for (const auto& [spelling, op] : kOps) {
      if (found || !skip_operator(spelling)) continue;
      chain->compare_ops.push_back(op);
      found = true;
    }
    if (!found && skip_name("in")) {
      chain->compare_ops.push_back(CompareOp::kIn);
      found = true;
    } else if (!found && at_name("not") && peek(1).kind == Token::Kind::kName &&
               peek(1).text == "in") {
      next();
      next();
      chain->compare_ops.push_back(CompareOp::kNotIn);
      found = true;
    }
    if (!found) break;
    TRY_ASSIGN(ExpressionPtr operand, arithmetic(0));
    chain->operands.push_back(std::move(operand));
  }
  if (chain->compare_ops.empty()) return std::move(chain->operands.front());
  return finish(std::move(chain));
}

Result<ExpressionPtr> Parser::arithmetic(int level) {
  struct Operator {
    std::string_view spelling;
    int level;
    BinaryOp op;
  };
  static constexpr int kConcatLevel = 1, kTightest = 3;
  static constexpr std::array<Operator, 7> kOperators = {{
      {"+", 0, BinaryOp::kAdd},
      {"-", 0, BinaryOp::kSubtract},
      {"*", 2, BinaryOp::kMultiply},
      {"/", 2, BinaryOp::kDivide},
      {"//", 2, BinaryOp::kFloorDivide},
      {"%", 2, BinaryOp::kModulo},
      {"**", 3, BinaryOp::kPower},
  }};
  const auto tighter = [&] { return level == kTightest ? unary(true) : arithmetic(level + 1); };
  TRY_ASSIGN(ExpressionPtr left, tighter());
  if (level == kConcatLevel) {
    if (!at_operator("~")) return left;
    auto concat = node(Expression::Kind::kConcat);
    concat->operands.push_back(std::move(left));
    while (skip_operator("~")) {
      TRY_ASSIGN(ExpressionPtr part, tighter());
      concat->operands.push_back(std::move(part));
    }
    return finish(std::move(concat));
  }
  while (true) {
    const Operator* found = nullptr;
    for (const Operator& candidate : kOperators)
      if (candidate.level == level && at_operator(candidate.spelling)) found = &candidate;
    if (found == nullptr) return left;
    next();
    auto binary = node(Expression::Kind::kBinary);
    binary->binary_op = found->op;
    TRY_ASSIGN(ExpressionPtr right, tighter());
    binary->operands.push_back(std::move(left));
    binary->operands.push_back(std::move(right));
    TRY_ASSIGN(left, finish(std::move(binary)));
  }
}

Result<ExpressionPtr> Parser::unary(bool with_filter) {
  std::string signs;
  while (at_operator("-") || at_operator("+")) signs += next().text;
  TRY_ASSIGN(ExpressionPtr value, primary());
  TRY_ASSIGN(value, postfix(std::move(value)));
  // Filters bind looser than a sign: -x|abs is (-x)|abs.
  if (signs.empty() && with_filter) return filters_and_tests(std::move(value));
  for (; !signs.empty(); signs.pop_back()) {
    auto sign = node(signs.back() == '-' ? Expression::Kind::kNegate : Expression::Kind::kPlus);
    sign->operands.push_back(std::move(value));
    TRY_ASSIGN(value, finish(std::move(sign)));
  }
  TRY_ASSIGN(value, postfix(std::move(value)));
  if (!with_filter) return value;
  return filters_and_tests(std::move(value));
}

Result<ExpressionPtr> Parser::primary() {
  const Token& token = peek();
  switch (token.kind) {
    case Token::Kind::kName: {
      auto name = node(Expression::Kind::kName);
      name->name = next().text;
      const std::string& word = name->name;
      if (word == "true" || word == "True" || word == "false" || word == "False") {
        name->kind = Expression::Kind::kConstant;
        name->constant = Value(word == "true" || word == "True");
      } else if (word == "none" || word == "None") {
        name->kind = Expression::Kind::kConstant;
        name->constant = Value(None{});
      }
      for (Parameters* callable : callables_) {
        callable->uses_varargs |= word == "varargs";
        callable->uses_kwargs |= word == "kwargs";
        callable->uses_caller |= word == "caller";
      }
      return finish(std::move(name));
    }
    case Token::Kind::kString:
      return string_literal();
    case Token::Kind::kInteger:
    case Token::Kind::kFloat: {
      auto number = node(Expression::Kind::kConstant);
      const std::string& digits = next().text;
      const char* const end = digits.data() + digits.size();
      double real = 0;
      int64_t integer = 0;
      if (token.kind == Token::Kind::kFloat) {
        std::from_chars(digits.data(), end, real);
        number->constant = Value(real);
      } else if (std::from_chars(digits.data(), end, integer).ec == std::errc()) {
        number->constant = Value(integer);
      } else {
        number->constant = Value(std::make_shared<const std::string>(digits));
      }
      return finish(std::move(number));
    }
    default:
      break;
  }
  if (at_operator("(")) return tuple_in_parentheses();
  if (at_operator("[")) return list_literal();
  if (at_operator("{")) return dict_literal();
  return unexpected();
}

Result<ExpressionPtr> Parser::string_literal() {
  auto literal = node(Expression::Kind::kConstant);
  std::string text;
  while (peek().kind == Token::Kind::kString) text += next().text;  // neighbours are one string
  literal->constant = Value::authored(text);
  return finish(std::move(literal));
}

Result<ExpressionPtr> Parser::list_literal() {
  auto list = node(Expression::Kind::kList);
  next();
  while (!at_operator("]")) {
    if (!list->operands.empty()) TRY(expect_operator(","));
    if (at_operator("]")) break;
    TRY_ASSIGN(ExpressionPtr item, expression());
    list->operands.push_back(std::move(item));
  }
  TRY(expect_operator("]"));
  return finish(std::move(list));
}

Result<ExpressionPtr> Parser::dict_literal() {
  auto dict = node(Expression::Kind::kDict);
  next();
  while (!at_operator("}")) {
    if (!dict->operands.empty()) TRY(expect_operator(","));
    if (at_operator("}")) break;
    TRY_ASSIGN(ExpressionPtr key, expression());
    TRY(expect_operator(":"));
    TRY_ASSIGN(ExpressionPtr value, expression());
    dict->operands.push_back(std::move(key));
    dict->operands.push_back(std::move(value));
  }
  TRY(expect_operator("}"));
  return finish(std::move(dict));
}

}  // namespace pewter::jinja
