// What may follow a value: attributes, subscripts, calls, filters and tests.
#include "text/jinja/parser.h"

namespace pewter::jinja {

Result<ExpressionPtr> Parser::postfix(ExpressionPtr object) {
  while (true) {
    if (at_operator(".") || at_operator("[")) {
      TRY_ASSIGN(object, subscript(std::move(object)));
    } else if (at_operator("(")) {
      TRY_ASSIGN(object, call(std::move(object)));
    } else {
      return object;
    }
  }
}

Result<ExpressionPtr> Parser::filters_and_tests(ExpressionPtr object) {
  while (true) {
    if (skip_operator("|")) {
      TRY_ASSIGN(object, filter(std::move(object)));
    } else if (skip_name("is")) {
      TRY_ASSIGN(object, test(std::move(object)));
    } else if (at_operator("(")) {
      TRY_ASSIGN(object, call(std::move(object)));
    } else {
      return object;
    }
  }
}

Result<ExpressionPtr> Parser::subscript(ExpressionPtr object) {
  if (skip_operator(".")) {
    if (peek().kind == Token::Kind::kInteger) {  // x.0 is x[0]
      auto item = node(Expression::Kind::kItem);
      TRY_ASSIGN(ExpressionPtr index, primary());
      item->operands.push_back(std::move(object));
      item->operands.push_back(std::move(index));
      return finish(std::move(item));
    }
    auto attribute = node(Expression::Kind::kAttribute);
    TRY_ASSIGN(attribute->name, expect_any_name());
    attribute->operands.push_back(std::move(object));
    return finish(std::move(attribute));
  }
  auto item = node(Expression::Kind::kItem);
  next();
  item->operands.push_back(std::move(object));
  const auto at_bound_end = [&] {
    return at_operator(":") || at_operator("]") || at_operator(",");
  };
  ExpressionPtr start;
  if (!at_bound_end()) {
    TRY_ASSIGN(start, expression());
  }
  if (!at_operator(":")) {
    if (start == nullptr) return unexpected();
    if (at_operator(",")) {
      auto tuple = node(Expression::Kind::kTuple);
      tuple->operands.push_back(std::move(start));
      while (skip_operator(",")) {
        TRY_ASSIGN(ExpressionPtr part, expression());
        tuple->operands.push_back(std::move(part));
      }
      TRY_ASSIGN(start, finish(std::move(tuple)));
    }
    item->operands.push_back(std::move(start));
    TRY(expect_operator("]"));
    return finish(std::move(item));
  }
  item->kind = Expression::Kind::kSlice;
  item->operands.push_back(std::move(start));
  for (int bound = 0; bound < 2; ++bound) {
    ExpressionPtr value;
    if (skip_operator(":") && !at_bound_end()) {
      TRY_ASSIGN(value, expression());
    }
    item->operands.push_back(std::move(value));
  }
  TRY(expect_operator("]"));
  return finish(std::move(item));
}

Status Parser::arguments(CallArguments& out) {
  TRY(expect_operator("("));
  bool first = true;
  while (!at_operator(")")) {
    if (!first) TRY(expect_operator(","));
    if (at_operator(")")) break;
    first = false;
    if (skip_operator("**")) {
      if (out.double_star != nullptr) return unexpected();
      TRY_ASSIGN(out.double_star, expression());
    } else if (skip_operator("*")) {
      if (out.star != nullptr || out.double_star != nullptr) return unexpected();
      TRY_ASSIGN(out.star, expression());
    } else if (peek().kind == Token::Kind::kName && peek(1).kind == Token::Kind::kOperator &&
               peek(1).text == "=") {
      if (out.double_star != nullptr) return unexpected();
      std::string name = next().text;
      next();
      TRY_ASSIGN(ExpressionPtr value, expression());
      out.named.emplace_back(std::move(name), std::move(value));
    } else {
      if (!out.named.empty() || out.star != nullptr || out.double_star != nullptr)
        return error("a positional argument follows a named one");
      TRY_ASSIGN(ExpressionPtr value, expression());
      out.positional.push_back(std::move(value));
    }
  }
  return expect_operator(")");
}

Result<ExpressionPtr> Parser::call(ExpressionPtr callee) {
  auto result = node(Expression::Kind::kCall);
  result->operands.push_back(std::move(callee));
  TRY(arguments(result->arguments));
  return finish(std::move(result));
}

Result<std::string> Parser::dotted_name() {
  TRY_ASSIGN(std::string name, expect_any_name());
  while (skip_operator(".")) {
    TRY_ASSIGN(const std::string more, expect_any_name());
    name += "." + more;
  }
  return name;
}

Result<ExpressionPtr> Parser::filter(ExpressionPtr input) {
  auto result = node(Expression::Kind::kFilter);
  TRY_ASSIGN(result->name, dotted_name());
  result->operands.push_back(std::move(input));
  if (at_operator("(")) TRY(arguments(result->arguments));
  return finish(std::move(result));
}

Result<ExpressionPtr> Parser::test(ExpressionPtr operand) {
  const bool negated = skip_name("not");
  auto result = node(Expression::Kind::kTest);
  TRY_ASSIGN(result->name, dotted_name());
  result->operands.push_back(std::move(operand));
  const Token& token = peek();
  const bool at_value =
      token.kind == Token::Kind::kString || token.kind == Token::Kind::kInteger ||
      token.kind == Token::Kind::kFloat || at_operator("[") || at_operator("{") ||
      (token.kind == Token::Kind::kName && !at_name("else") && !at_name("or") && !at_name("and"));
  if (at_operator("(")) {
    TRY(arguments(result->arguments));
  } else if (at_value) {  // x is divisibleby 3
    if (at_name("is")) return error("tests cannot be chained with 'is'");
    TRY_ASSIGN(ExpressionPtr argument, primary());
    TRY_ASSIGN(argument, postfix(std::move(argument)));
    result->arguments.positional.push_back(std::move(argument));
  }
  TRY_ASSIGN(ExpressionPtr finished, finish(std::move(result)));
  if (!negated) return finished;
  auto inverse = node(Expression::Kind::kNot);
  inverse->operands.push_back(std::move(finished));
  return finish(std::move(inverse));
}

}  // namespace pewter::jinja
