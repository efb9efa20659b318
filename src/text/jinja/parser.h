// Builds the tree of a template. Statements are parsed in parser.cc, expressions in
// expression_parser.cc; both are recursive descent over the token list.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "text/jinja/ast.h"
#include "text/jinja/lexer.h"

namespace pewter::jinja {

// Errors: kCorruptData for what is no Jinja, kUnsupported for a tag we do not know; both say
// "line 12: …".
Result<Block> parse_template(std::string_view source);

class Parser {
 public:
  explicit Parser(std::vector<Token> tokens) : tokens_(std::move(tokens)) {}

  // Statements up to a tag that begins with one of the words in `ends`, which is left to be read;
  // or to the end of the template when there are none.
  Result<Block> statements(const std::vector<std::string_view>& ends);

 private:
  using StatementPtr = std::unique_ptr<const Statement>;

  // Tokens.
  const Token& peek(size_t ahead = 0) const;
  const Token& next();
  bool at_operator(std::string_view op) const;
  bool at_name(std::string_view name) const;
  bool skip_operator(std::string_view op);
  bool skip_name(std::string_view name);
  Status expect_operator(std::string_view op);
  Status expect_name(std::string_view name);
  Result<std::string> expect_any_name();
  Status expect_block_end();
  Error error(std::string_view message) const;
  Error unexpected() const;

  // Statements.
  Result<StatementPtr> statement();
  Result<StatementPtr> if_statement();
  Result<StatementPtr> for_statement();
  Result<StatementPtr> set_statement();
  Result<StatementPtr> macro_statement();
  Result<StatementPtr> call_statement();
  Result<StatementPtr> filter_statement();
  Result<StatementPtr> with_statement();
  Result<StatementPtr> generation_statement();
  Status callable_body(Statement& node, std::string_view end);
  Status parameters(Parameters& out);
  Result<Target> target(bool allow_attribute);
  Result<Target> single_target(bool allow_attribute);

  // Expressions, from the loosest binding to the tightest.
  enum class Conditional { kAllowed, kRefused };
  Result<ExpressionPtr> expression_or_tuple(Conditional conditional);
  Result<ExpressionPtr> tuple_in_parentheses();
  Result<ExpressionPtr> expression(Conditional conditional = Conditional::kAllowed);
  Result<ExpressionPtr> logical(bool is_or);
  Result<ExpressionPtr> negation();
  Result<ExpressionPtr> comparison();
  Result<ExpressionPtr> arithmetic(int level);
  Result<ExpressionPtr> unary(bool with_filter);
  Result<ExpressionPtr> primary();
  Result<ExpressionPtr> string_literal();
  Result<ExpressionPtr> list_literal();
  Result<ExpressionPtr> dict_literal();
  Result<ExpressionPtr> postfix(ExpressionPtr object);
  Result<ExpressionPtr> filters_and_tests(ExpressionPtr object);
  Result<ExpressionPtr> subscript(ExpressionPtr object);
  Result<ExpressionPtr> call(ExpressionPtr callee);
  Result<ExpressionPtr> filter(ExpressionPtr input);
  Result<ExpressionPtr> test(ExpressionPtr operand);
  Status arguments(CallArguments& out);
  bool at_tuple_end() const;
  Result<std::string> dotted_name();

  std::unique_ptr<Expression> node(Expression::Kind kind) const;
  // Checks the depth of a finished node.
  Result<ExpressionPtr> finish(std::unique_ptr<Expression> expression) const;

  std::vector<Token> tokens_;
  size_t at_ = 0;
  int nesting_ = 0;       // of blocks and bracketed expressions being parsed
  int loop_nesting_ = 0;  // of {% for %} around here, in this macro
  // The special names that the bodies of the macros being parsed mention.
  std::vector<Parameters*> callables_;
};

}  // namespace pewter::jinja
