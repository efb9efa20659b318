// Runs a parsed template: statements in interpreter.cc, expressions in evaluate.cc, calls in
// call.cc. One object is one rendering.
//
// Recursion over the tree is bounded by RenderLimits::max_depth. An error is tied to the line of
// the innermost node that failed, once, on its way up.
#pragma once

#include <ctime>
#include <memory>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "base/result.h"
#include "text/jinja/limits.h"
#include "text/jinja/runtime.h"

namespace pewter::jinja {

class Interpreter {
 public:
  // local_time: what strftime_now() tells; the clock's when absent.
  Interpreter(Budget& budget, std::optional<std::tm> local_time)
      : budget_(budget), local_time_(local_time) {}

  Result<Text> render(const Block& block, std::vector<Dict::Item> variables);
  // After a failure: the line it happened on (0 if nowhere), and whether the template itself raised
  // it; then the error's message is the template's.
  int failed_line() const { return failed_line_; }
  bool raised() const { return raised_; }

  // For filters, which may apply other filters, tests and look into values.
  Budget& budget() { return budget_; }
  Result<Value> apply_filter(std::string_view name, const Value& input, const Arguments& arguments);
  Result<bool> apply_test(std::string_view name, const Value& value, const Arguments& arguments);

 private:
  enum class Flow { kNext, kBreak, kContinue };

  // Statements.
  Result<Flow> execute(const Block& block);
  Result<Flow> execute(const Statement& statement);
  Result<Flow> execute_kind(const Statement& statement);
  Result<Flow> execute_if(const Statement& statement);
  Result<Flow> execute_for(const Statement& statement);
  Result<Flow> execute_with(const Statement& statement);
  Status execute_output(const Statement& statement);
  Status execute_set_block(const Statement& statement);
  Status execute_call_block(const Statement& statement);
  Status execute_filter_block(const Statement& statement);
  Result<Flow> run_loop(const Statement& statement, const Value& iterable, int64_t depth);
  Result<std::shared_ptr<const Sequence>> loop_items(const Statement& statement,
                                                     const Value& iterable);
  Status assign(const Target& target, const Value& value);
  Result<Text> capture(const Block& block, Flow& flow);
  Status write(const Value& value);

  // Expressions.
  Result<Value> evaluate(const Expression& expression);
  Result<Value> evaluate_kind(const Expression& expression);
  Result<std::vector<Value>> evaluate_operands(const Expression& expression);
  Result<Value> evaluate_name(const Expression& expression);
  Result<Value> evaluate_dict(const Expression& expression);
  Result<Value> evaluate_logical(const Expression& expression);
  Result<Value> evaluate_concat(const Expression& expression);
  Result<Value> evaluate_compare(const Expression& expression);
  Result<Value> evaluate_conditional(const Expression& expression);
  Result<Value> evaluate_slice(const Expression& expression);
  Result<Value> evaluate_call(const Expression& expression);
  Result<Value> evaluate_filter(const Expression& expression, const Value* input);
  Result<Value> evaluate_test(const Expression& expression);

  // Calls.
  Result<Arguments> evaluate_arguments(const CallArguments& arguments);
  Result<Value> call(const Value& callee, const Arguments& arguments);
  Result<Value> call_macro(const Macro& macro, const Arguments& arguments);
  Status bind_parameters(const Macro& macro, const Arguments& arguments);
  Result<Value> call_loop(const Loop& loop, const Arguments& arguments);
  Result<Value> call_global(GlobalFunction function, const Arguments& arguments);
  Result<Value> call_range(const Arguments& arguments);
  Result<Value> call_namespace(const Arguments& arguments);
  Result<Value> call_strftime(const Arguments& arguments);
  Result<std::vector<Dict::Item>> dict_items(const Arguments& arguments);

  // Runs with another scope as the current one until destroyed.
  class EnterScope {
   public:
    EnterScope(Interpreter& interpreter, std::shared_ptr<Scope> parent)
        : interpreter_(interpreter), outer_(std::move(interpreter.scope_)) {
      interpreter.scope_ = std::make_shared<Scope>();
      interpreter.scope_->parent = std::move(parent);
    }
    ~EnterScope() { interpreter_.scope_ = std::move(outer_); }
    EnterScope(const EnterScope&) = delete;
    EnterScope& operator=(const EnterScope&) = delete;

   private:
    Interpreter& interpreter_;
    std::shared_ptr<Scope> outer_;
  };
  class Depth;

  Budget& budget_;
  const std::optional<std::tm> local_time_;
  Arena arena_;
  std::shared_ptr<Scope> scope_;
  TextBuilder* out_ = nullptr;
  int depth_ = 0;
  int failed_line_ = 0;
  bool raised_ = false;
};

}  // namespace pewter::jinja
