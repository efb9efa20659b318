#include "text/jinja/interpreter.h"

#include "text/jinja/access.h"
#include "text/jinja/depth.h"
#include "text/jinja/print.h"

namespace pewter::jinja {

Result<Text> Interpreter::render(const Block& block, std::vector<Dict::Item> variables) {
  scope_ = std::make_shared<Scope>();
  // Their names must outlive the scope, whose keys are views: the dictionary holds them.
  TRY_ASSIGN(const Value held, make_dict(budget_, std::move(variables)));
  for (const auto& [name, value] : held.dict().items) scope_->set(name.text().view(), value);
  const auto inputs = std::exchange(scope_, std::make_shared<Scope>());
  scope_->parent = inputs;
  Flow flow = Flow::kNext;
  Result<Text> out = capture(block, flow);
  scope_.reset();
  return out;
}

Result<Interpreter::Flow> Interpreter::execute(const Block& block) {
  for (const auto& statement : block) {
    TRY_ASSIGN(const Flow flow, execute(*statement));
    if (flow != Flow::kNext) return flow;
  }
  return Flow::kNext;
}

Result<Interpreter::Flow> Interpreter::execute(const Statement& statement) {
  const Depth depth(*this);
  Status allowed = depth.check();
  if (allowed) allowed = budget_.spend_steps(1);
  Result<Flow> flow = allowed ? execute_kind(statement) : Result<Flow>(allowed.error());
  if (!flow && failed_line_ == 0) failed_line_ = statement.line;
  return flow;
}

Result<Interpreter::Flow> Interpreter::execute_kind(const Statement& statement) {
  switch (statement.kind) {
    case Statement::Kind::kText:
      out_->append(statement.text);
      if (out_->overflowed()) return budget_.too_long();
      break;
    case Statement::Kind::kOutput:
      TRY(execute_output(statement));
      break;
    case Statement::Kind::kIf:
      return execute_if(statement);
    case Statement::Kind::kFor:
      return execute_for(statement);
    case Statement::Kind::kSet: {
      TRY_ASSIGN(const Value value, evaluate(*statement.expressions[0]));
      TRY(assign(statement.target, value));
      break;
    }
    case Statement::Kind::kSetBlock:
      TRY(execute_set_block(statement));
      break;
    case Statement::Kind::kMacro:
      TRY(budget_.spend_memory(sizeof(Macro)));
      arena_.macros.push_back({&statement, scope_});
      scope_->set(statement.name, Value(&std::as_const(arena_.macros.back())));
      break;
    case Statement::Kind::kCallBlock:
      TRY(execute_call_block(statement));
      break;
    case Statement::Kind::kFilterBlock:
      TRY(execute_filter_block(statement));
      break;
    case Statement::Kind::kWith:
      return execute_with(statement);
    case Statement::Kind::kBreak:
      return Flow::kBreak;
    case Statement::Kind::kContinue:
      return Flow::kContinue;
  }
  return Flow::kNext;
}

Status Interpreter::write(const Value& value) {
  TRY(append_str(budget_, *out_, value));
  if (out_->overflowed()) return budget_.too_long();
  return {};
}

Status Interpreter::execute_output(const Statement& statement) {
  for (const auto& expression : statement.expressions) {
    TRY_ASSIGN(const Value value, evaluate(*expression));
    TRY(write(value));
  }
  return {};
}

Result<Interpreter::Flow> Interpreter::execute_if(const Statement& statement) {
  for (const Statement::Branch& branch : statement.branches) {
    if (branch.condition != nullptr) {
      TRY_ASSIGN(const Value condition, evaluate(*branch.condition));
      if (!condition.truthy()) continue;
    }
    return execute(branch.body);
  }
  return Flow::kNext;
}

Result<Interpreter::Flow> Interpreter::execute_for(const Statement& statement) {
  TRY_ASSIGN(const Value iterable, evaluate(*statement.expressions[0]));
  return run_loop(statement, iterable, 0);
}

// What the loop visits, its condition applied. The condition is evaluated for all items before the
// first turn, so that the loop knows its length and neighbours; Jinja takes them one by one.
Result<std::shared_ptr<const Sequence>> Interpreter::loop_items(const Statement& statement,
                                                                const Value& iterable) {
  TRY_ASSIGN(auto all, iterate(budget_, iterable));
  if (statement.expressions[1] == nullptr) return all;
  std::vector<Value> kept;
  const EnterScope scope(*this, scope_);
  for (const Value& item : all->items) {
    TRY(assign(statement.target, item));
    TRY_ASSIGN(const Value keep, evaluate(*statement.expressions[1]));
    if (keep.truthy()) kept.push_back(item);
  }
  TRY_ASSIGN(const Value list, make_sequence(budget_, Sequence::Kind::kList, std::move(kept)));
  return list.sequence();
}

Result<Interpreter::Flow> Interpreter::run_loop(const Statement& statement, const Value& iterable,
                                                int64_t depth) {
  TRY_ASSIGN(const auto items, loop_items(statement, iterable));
  TRY(budget_.spend_memory(sizeof(Loop)));
  Loop& loop = arena_.loops.emplace_back();
  loop = {&statement, scope_, items, 0, depth, {}};
  for (const Value& item : items->items) {
    const EnterScope scope(*this, scope_);
    scope_->set("loop", Value(&loop));
    TRY(assign(statement.target, item));
    TRY_ASSIGN(const Flow flow, execute(statement.body));
    if (flow == Flow::kBreak) break;
    ++loop.index;
  }
  loop.scope.reset();
  if (items->items.empty()) return execute(statement.otherwise);
  return Flow::kNext;
}

Result<Interpreter::Flow> Interpreter::execute_with(const Statement& statement) {
  std::vector<Value> values;  // evaluated outside the new scope
  for (const auto& [target, expression] : statement.assignments) {
    TRY_ASSIGN(Value value, evaluate(*expression));
    values.push_back(std::move(value));
  }
  const EnterScope scope(*this, scope_);
  for (size_t i = 0; i < values.size(); ++i) TRY(assign(statement.assignments[i].first, values[i]));
  return execute(statement.body);
}

Status Interpreter::assign(const Target& target, const Value& value) {
  switch (target.kind) {
    case Target::Kind::kName:
      scope_->set(target.name, value);
      return {};
    case Target::Kind::kAttribute: {
      const Value* found = scope_->find(target.name);
      if (found == nullptr || found->kind() != Value::Kind::kNamespace)
        return Error{
            ErrorCode::kUnsupported,
            str_cat("cannot assign attribute on non-namespace object ", quoted(target.name))};
      auto& attributes = found->as_namespace()->attributes;
      for (auto& [name, old] : attributes) {
        if (name == target.attribute) {
          old = value;
          return {};
        }
      }
      attributes.emplace_back(target.attribute, value);
      return {};
    }
    case Target::Kind::kTuple: {
      TRY_ASSIGN(const auto parts, iterate(budget_, value));
      if (parts->items.size() != target.parts.size())
        return Error{ErrorCode::kUnsupported,
                     str_cat("cannot unpack ", parts->items.size(), " values into ",
                             target.parts.size(), " names")};
      for (size_t i = 0; i < target.parts.size(); ++i)
        TRY(assign(target.parts[i], parts->items[i]));
      return {};
    }
  }
  return {};
}

// What a block prints, as a text instead of output.
Result<Text> Interpreter::capture(const Block& block, Flow& flow) {
  TextBuilder builder(budget_.limits().max_output_bytes);
  TextBuilder* const outer = std::exchange(out_, &builder);
  const Result<Flow> ended = execute(block);
  out_ = outer;
  if (!ended) return ended.error();
  flow = *ended;
  return builder.take();
}

Status Interpreter::execute_set_block(const Statement& statement) {
  Value value;
  {
    const EnterScope scope(*this, scope_);
    Flow flow = Flow::kNext;
    TRY_ASSIGN(Text text, capture(statement.body, flow));
    TRY_ASSIGN(value, make_text(budget_, std::move(text)));
  }
  if (statement.expressions[0] != nullptr) {
    TRY_ASSIGN(value, evaluate_filter(*statement.expressions[0], &value));
  }
  return assign(statement.target, value);
}

Status Interpreter::execute_filter_block(const Statement& statement) {
  const EnterScope scope(*this, scope_);
  Flow flow = Flow::kNext;
  TRY_ASSIGN(Text text, capture(statement.body, flow));
  TRY_ASSIGN(const Value value, make_text(budget_, std::move(text)));
  TRY_ASSIGN(const Value filtered, evaluate_filter(*statement.expressions[0], &value));
  return write(filtered);
}

Status Interpreter::execute_call_block(const Statement& statement) {
  TRY(budget_.spend_memory(sizeof(Macro)));
  arena_.macros.push_back({&statement, scope_});
  const Value caller(&std::as_const(arena_.macros.back()));
  const Expression& expression = *statement.expressions[0];
  TRY_ASSIGN(const Value callee, evaluate(*expression.operands[0]));
  TRY_ASSIGN(Arguments arguments, evaluate_arguments(expression.arguments));
  arguments.named.emplace_back("caller", caller);
  TRY_ASSIGN(const Value result, call(callee, arguments));
  return write(result);
}

}  // namespace pewter::jinja
