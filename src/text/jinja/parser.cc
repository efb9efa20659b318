#include "text/jinja/parser.h"

#include <algorithm>

namespace pewter::jinja {
namespace {

constexpr int kMaxNesting = 100;

// Counts a level of recursion for as long as it lives.
class Level {
 public:
  explicit Level(int& level) : level_(++level) {}
  ~Level() { --level_; }
  Level(const Level&) = delete;
  Level& operator=(const Level&) = delete;
  bool too_deep() const { return level_ > kMaxNesting; }

 private:
  int& level_;
};

std::unique_ptr<Statement> make(Statement::Kind kind, int line) {
  auto statement = std::make_unique<Statement>();
  statement->kind = kind;
  statement->line = line;
  return statement;
}

}  // namespace

Result<Block> parse_template(std::string_view source) {
  TRY_ASSIGN(std::vector<Token> tokens, tokenize(source));
  return Parser(std::move(tokens)).statements({});
}

const Token& Parser::peek(size_t ahead) const {
  return tokens_[std::min(at_ + ahead, tokens_.size() - 1)];
}

const Token& Parser::next() {
  const Token& token = peek();
  if (at_ + 1 < tokens_.size()) ++at_;
  return token;
}

bool Parser::at_operator(std::string_view op) const {
  return peek().kind == Token::Kind::kOperator && peek().text == op;
}

bool Parser::at_name(std::string_view name) const {
  return peek().kind == Token::Kind::kName && peek().text == name;
}

bool Parser::skip_operator(std::string_view op) {
  if (!at_operator(op)) return false;
  next();
  return true;
}

bool Parser::skip_name(std::string_view name) {
  if (!at_name(name)) return false;
  next();
  return true;
}

Status Parser::expect_operator(std::string_view op) {
  if (skip_operator(op)) return {};
  return error(str_cat("'", op, "' is missing"));
}

Status Parser::expect_name(std::string_view name) {
  if (skip_name(name)) return {};
  return error(str_cat("'", name, "' is missing"));
}

Result<std::string> Parser::expect_any_name() {
  if (peek().kind != Token::Kind::kName) return unexpected();
  return next().text;
}

Status Parser::expect_block_end() {
  if (peek().kind != Token::Kind::kBlockEnd) return unexpected();
  next();
  return {};
}

Error Parser::error(std::string_view message) const {
  return Error{ErrorCode::kCorruptData, str_cat("line ", peek().line, ": ", message)};
}

Error Parser::unexpected() const {
  switch (peek().kind) {
    case Token::Kind::kEnd:
      return error("the template ends too early");
    case Token::Kind::kBlockEnd:
    case Token::Kind::kOutputEnd:
      return error("the tag ends too early");
    default:
      return error(str_cat("unexpected '", peek().text, "'"));
  }
}

Result<Block> Parser::statements(const std::vector<std::string_view>& ends) {
  const Level level(nesting_);
  if (level.too_deep()) return error("blocks are nested too deeply");
  Block block;
  while (true) {
    const Token& token = peek();
    if (token.kind == Token::Kind::kEnd) {
      if (!ends.empty()) return error(str_cat("'", ends.front(), "' is missing"));
      return block;
    }
    if (token.kind == Token::Kind::kText) {
      auto text = make(Statement::Kind::kText, token.line);
      text->text = Text::authored(token.text);
      block.push_back(std::move(text));
      next();
    } else if (token.kind == Token::Kind::kOutputBegin) {
      next();
      auto output = make(Statement::Kind::kOutput, peek().line);
      TRY_ASSIGN(ExpressionPtr value, expression_or_tuple(Conditional::kAllowed));
      output->expressions.push_back(std::move(value));
      if (peek().kind != Token::Kind::kOutputEnd) return unexpected();
      next();
      block.push_back(std::move(output));
    } else {
      next();  // {%
      if (peek().kind == Token::Kind::kName &&
          std::find(ends.begin(), ends.end(), peek().text) != ends.end())
        return block;
      TRY_ASSIGN(StatementPtr parsed, statement());
      block.push_back(std::move(parsed));
    }
  }
}

Result<Parser::StatementPtr> Parser::statement() {
  const int line = peek().line;
  TRY_ASSIGN(const std::string word, expect_any_name());
  if (word == "if") return if_statement();
  if (word == "for") return for_statement();
  if (word == "set") return set_statement();
  if (word == "macro") return macro_statement();
  if (word == "call") return call_statement();
  if (word == "filter") return filter_statement();
  if (word == "with") return with_statement();
  if (word == "generation") return generation_statement();
  if (word == "break" || word == "continue") {
    if (loop_nesting_ == 0) return error(str_cat("'", word, "' outside a loop"));
    TRY(expect_block_end());
    return StatementPtr(
        make(word == "break" ? Statement::Kind::kBreak : Statement::Kind::kContinue, line));
  }
  if (word == "print") {
    auto output = make(Statement::Kind::kOutput, line);
    while (peek().kind != Token::Kind::kBlockEnd) {
      if (!output->expressions.empty()) TRY(expect_operator(","));
      TRY_ASSIGN(ExpressionPtr value, expression());
      output->expressions.push_back(std::move(value));
    }
    TRY(expect_block_end());
    return StatementPtr(std::move(output));
  }
  return Error{ErrorCode::kUnsupported, str_cat("line ", line, ": unknown tag '", word, "'")};
}

Result<Parser::StatementPtr> Parser::if_statement() {
  auto node = make(Statement::Kind::kIf, peek().line);
  bool has_else = false;
  while (true) {
    Statement::Branch branch;
    if (!has_else) {
      TRY_ASSIGN(branch.condition, expression_or_tuple(Conditional::kRefused));
    }
    TRY(expect_block_end());
    TRY_ASSIGN(branch.body,
               statements(has_else ? std::vector<std::string_view>{"endif"}
                                   : std::vector<std::string_view>{"endif", "elif", "else"}));
    node->branches.push_back(std::move(branch));
    const std::string word = next().text;
    if (word == "endif") break;
    has_else = word == "else";
  }
  TRY(expect_block_end());
  return StatementPtr(std::move(node));
}

Result<Parser::StatementPtr> Parser::for_statement() {
  auto node = make(Statement::Kind::kFor, peek().line);
  TRY_ASSIGN(node->target, target(false));
  TRY(expect_name("in"));
  TRY_ASSIGN(ExpressionPtr items, expression_or_tuple(Conditional::kRefused));
  ExpressionPtr condition;
  if (skip_name("if")) {
    TRY_ASSIGN(condition, expression());
  }
  node->recursive = skip_name("recursive");
  node->expressions.push_back(std::move(items));
  node->expressions.push_back(std::move(condition));
  TRY(expect_block_end());
  ++loop_nesting_;
  TRY_ASSIGN(node->body, statements({"endfor", "else"}));
  --loop_nesting_;
  if (next().text == "else") {
    TRY(expect_block_end());
    TRY_ASSIGN(node->otherwise, statements({"endfor"}));
    next();
  }
  TRY(expect_block_end());
  return StatementPtr(std::move(node));
}

Result<Target> Parser::single_target(bool allow_attribute) {
  const Level level(nesting_);
  if (level.too_deep()) return error("targets are nested too deeply");
  if (skip_operator("(")) {
    TRY_ASSIGN(Target inner, target(allow_attribute));
    TRY(expect_operator(")"));
    return inner;
  }
  Target out;
  TRY_ASSIGN(out.name, expect_any_name());
  for (const std::string_view word : {"true", "false", "none", "True", "False", "None"})
    if (out.name == word) return error(str_cat("cannot assign to '", word, "'"));
  if (allow_attribute && skip_operator(".")) {
    out.kind = Target::Kind::kAttribute;
    TRY_ASSIGN(out.attribute, expect_any_name());
  }
  return out;
}

Result<Target> Parser::target(bool allow_attribute) {
  TRY_ASSIGN(Target first, single_target(allow_attribute));
  if (!at_operator(",")) return first;
  Target tuple;
  tuple.kind = Target::Kind::kTuple;
  tuple.parts.push_back(std::move(first));
  while (skip_operator(",")) {
    if (at_name("in") || at_operator("=") || at_operator(")")) break;
    TRY_ASSIGN(Target part, single_target(allow_attribute));
    tuple.parts.push_back(std::move(part));
  }
  return tuple;
}

Result<Parser::StatementPtr> Parser::set_statement() {
  auto node = make(Statement::Kind::kSet, peek().line);
  TRY_ASSIGN(node->target, target(true));
  if (skip_operator("=")) {
    TRY_ASSIGN(ExpressionPtr value, expression_or_tuple(Conditional::kAllowed));
    node->expressions.push_back(std::move(value));
    TRY(expect_block_end());
    return StatementPtr(std::move(node));
  }
  node->kind = Statement::Kind::kSetBlock;
  ExpressionPtr filters;
  while (skip_operator("|")) {
    TRY_ASSIGN(filters, filter(std::move(filters)));
  }
  node->expressions.push_back(std::move(filters));
  TRY(expect_block_end());
  TRY_ASSIGN(node->body, statements({"endset"}));
  next();
  TRY(expect_block_end());
  return StatementPtr(std::move(node));
}

Status Parser::parameters(Parameters& out) {
  TRY(expect_operator("("));
  while (!at_operator(")")) {
    if (!out.names.empty()) TRY(expect_operator(","));
    if (at_operator(")")) break;
    TRY_ASSIGN(std::string name, expect_any_name());
    out.names.push_back(std::move(name));
    if (skip_operator("=")) {
      TRY_ASSIGN(ExpressionPtr value, expression());
      out.defaults.push_back(std::move(value));
    } else if (!out.defaults.empty()) {
      return error("a parameter without a default follows one with a default");
    }
  }
  return expect_operator(")");
}

// The body of a macro or call block, whose mentions of the special names are noted on the way.
Status Parser::callable_body(Statement& node, std::string_view end) {
  TRY(expect_block_end());
  callables_.push_back(&node.parameters);
  const int outer_loops = std::exchange(loop_nesting_, 0);
  TRY_ASSIGN(node.body, statements({end}));
  loop_nesting_ = outer_loops;
  callables_.pop_back();
  next();
  return expect_block_end();
}

Result<Parser::StatementPtr> Parser::macro_statement() {
  auto node = make(Statement::Kind::kMacro, peek().line);
  TRY_ASSIGN(node->name, expect_any_name());
  TRY(parameters(node->parameters));
  TRY(callable_body(*node, "endmacro"));
  return StatementPtr(std::move(node));
}

Result<Parser::StatementPtr> Parser::call_statement() {
  auto node = make(Statement::Kind::kCallBlock, peek().line);
  node->name = "caller";
  if (at_operator("(")) TRY(parameters(node->parameters));
  TRY_ASSIGN(ExpressionPtr callee, expression());
  if (callee->kind != Expression::Kind::kCall) return error("a call block needs a call");
  node->expressions.push_back(std::move(callee));
  TRY(callable_body(*node, "endcall"));
  return StatementPtr(std::move(node));
}

Result<Parser::StatementPtr> Parser::filter_statement() {
  auto node = make(Statement::Kind::kFilterBlock, peek().line);
  TRY_ASSIGN(ExpressionPtr filters, filter(nullptr));
  while (skip_operator("|")) {
    TRY_ASSIGN(filters, filter(std::move(filters)));
  }
  node->expressions.push_back(std::move(filters));
  TRY(expect_block_end());
  TRY_ASSIGN(node->body, statements({"endfilter"}));
  next();
  TRY(expect_block_end());
  return StatementPtr(std::move(node));
}

Result<Parser::StatementPtr> Parser::with_statement() {
  auto node = make(Statement::Kind::kWith, peek().line);
  while (peek().kind != Token::Kind::kBlockEnd) {
    if (!node->assignments.empty()) TRY(expect_operator(","));
    TRY_ASSIGN(Target name, single_target(false));
    TRY(expect_operator("="));
    TRY_ASSIGN(ExpressionPtr value, expression());
    node->assignments.emplace_back(std::move(name), std::move(value));
  }
  TRY(expect_block_end());
  TRY_ASSIGN(node->body, statements({"endwith"}));
  next();
  TRY(expect_block_end());
  return StatementPtr(std::move(node));
}

// {% generation %} marks what the model is to learn in training; here it is a scope and no more.
Result<Parser::StatementPtr> Parser::generation_statement() {
  auto node = make(Statement::Kind::kWith, peek().line);
  TRY(expect_block_end());
  TRY_ASSIGN(node->body, statements({"endgeneration"}));
  next();
  TRY(expect_block_end());
  return StatementPtr(std::move(node));
}

}  // namespace pewter::jinja
