// Calls: arguments, macros, recursive loops and the global functions.
#include <array>
#include <ctime>

#include "text/jinja/access.h"
#include "text/jinja/arguments.h"
#include "text/jinja/arithmetic.h"
#include "text/jinja/globals.h"
#include "text/jinja/interpreter.h"
#include "text/jinja/print.h"

namespace pewter::jinja {
namespace {

constexpr int64_t kMaxRange = 100'000;  // of Jinja's sandbox

}  // namespace

std::optional<GlobalFunction> find_global(std::string_view name) {
  static constexpr std::array<std::pair<std::string_view, GlobalFunction>, 5> kGlobals = {{
      {"range", GlobalFunction::kRange},
      {"namespace", GlobalFunction::kNamespace},
      {"dict", GlobalFunction::kDict},
      {"raise_exception", GlobalFunction::kRaiseException},
      {"strftime_now", GlobalFunction::kStrftimeNow},
  }};
  for (const auto& [known, function] : kGlobals)
    if (known == name) return function;
  return std::nullopt;
}

Result<Arguments> Interpreter::evaluate_arguments(const CallArguments& arguments) {
  Arguments out;
  for (const auto& expression : arguments.positional) {
    TRY_ASSIGN(Value value, evaluate(*expression));
    out.positional.push_back(std::move(value));
  }
  for (const auto& [name, expression] : arguments.named) {
    TRY_ASSIGN(Value value, evaluate(*expression));
    out.named.emplace_back(name, std::move(value));
  }
  if (arguments.star != nullptr) {
    TRY_ASSIGN(const Value more, evaluate(*arguments.star));
    TRY_ASSIGN(const auto items, iterate(budget_, more));
    TRY(budget_.spend_memory(static_cast<int64_t>(items->items.size() * sizeof(Value))));
    out.positional.insert(out.positional.end(), items->items.begin(), items->items.end());
  }
  if (arguments.double_star != nullptr) {
    TRY_ASSIGN(const Value more, evaluate(*arguments.double_star));
    if (!more.is_dict())
      return Error{ErrorCode::kUnsupported, "the argument after ** must be a mapping"};
    for (const auto& [key, value] : more.dict().items) {
      if (!key.is_string()) return Error{ErrorCode::kUnsupported, "keywords must be strings"};
      TRY(budget_.spend_memory(static_cast<int64_t>(sizeof(Dict::Item) + key.text().size())));
      out.named.emplace_back(key.text().bytes, value);
    }
  }
  return out;
}

Result<Value> Interpreter::evaluate_call(const Expression& expression) {
  const Expression& callee = *expression.operands[0];
  if (callee.kind == Expression::Kind::kAttribute) {  // a method: no bound object is made for it
    TRY_ASSIGN(const Value self, evaluate(*callee.operands[0]));
    if (has_method(self, callee.name)) {
      TRY_ASSIGN(const Arguments arguments, evaluate_arguments(expression.arguments));
      return call_method(budget_, self, callee.name, arguments);
    }
    TRY_ASSIGN(const Value function, attribute(budget_, self, callee.name));
    TRY_ASSIGN(const Arguments arguments, evaluate_arguments(expression.arguments));
    return call(function, arguments);
  }
  TRY_ASSIGN(const Value function, evaluate(callee));
  TRY_ASSIGN(const Arguments arguments, evaluate_arguments(expression.arguments));
  return call(function, arguments);
}

Result<Value> Interpreter::call(const Value& callee, const Arguments& arguments) {
  switch (callee.kind()) {
    case Value::Kind::kUndefined:
      return undefined_error(callee);
    case Value::Kind::kMacro:
      return call_macro(*callee.macro(), arguments);
    case Value::Kind::kLoop:
      return call_loop(*callee.loop(), arguments);
    case Value::Kind::kMethod:
      return call_method(budget_, callee.method().self, callee.method().name, arguments);
    case Value::Kind::kGlobalFunction:
      return call_global(callee.global_function(), arguments);
    default:
      return Error{ErrorCode::kUnsupported,
                   str_cat("'", callee.type_name(), "' object is not callable")};
  }
}

Result<Value> Interpreter::call_macro(const Macro& macro, const Arguments& arguments) {
  const EnterScope scope(*this, macro.scope);
  TRY(bind_parameters(macro, arguments));
  Flow flow = Flow::kNext;
  TRY_ASSIGN(Text text, capture(macro.node->body, flow));
  return make_text(budget_, std::move(text));
}

// Sets the macro's parameters in the current scope. A default may use the parameters before it.
Status Interpreter::bind_parameters(const Macro& macro, const Arguments& arguments) {
  const Parameters& parameters = macro.node->parameters;
  const auto refuse = [&](std::string_view what) {
    return Error{ErrorCode::kUnsupported, str_cat("macro ", quoted(macro.node->name), " ", what)};
  };
  std::vector<bool> used(arguments.named.size());
  const auto named = [&](std::string_view name) -> const Value* {
    for (size_t i = 0; i < used.size(); ++i) {
      if (used[i] || arguments.named[i].first != name) continue;
      used[i] = true;
      return &arguments.named[i].second;
    }
    return nullptr;
  };
  const size_t count = parameters.names.size();
  const size_t first_default = count - parameters.defaults.size();
  bool names_caller = false;
  for (size_t i = 0; i < count; ++i) {
    const std::string& name = parameters.names[i];
    names_caller |= name == "caller";
    const Value* given = i < arguments.positional.size() ? &arguments.positional[i] : named(name);
    if (given != nullptr) {
      scope_->set(name, *given);
    } else if (i >= first_default) {
      TRY_ASSIGN(Value value, evaluate(*parameters.defaults[i - first_default]));
      scope_->set(name, std::move(value));
    } else {
      scope_->set(name, Value::undefined(str_cat("parameter ", quoted(name), " was not provided")));
    }
  }
  if (parameters.uses_caller && !names_caller) {
    const Value* caller = named("caller");
    scope_->set("caller", caller != nullptr ? *caller : Value::undefined("No caller defined"));
  }
  std::vector<Dict::Item> rest;
  for (size_t i = 0; i < used.size(); ++i) {
    if (used[i]) continue;
    const auto& [name, value] = arguments.named[i];
    if (!parameters.uses_kwargs) return refuse(str_cat("takes no keyword argument ", quoted(name)));
    rest.emplace_back(Value(Text::from_client(name)), value);
  }
  if (parameters.uses_kwargs) {
    TRY_ASSIGN(Value kwargs, make_dict(budget_, std::move(rest)));
    scope_->set("kwargs", std::move(kwargs));
  }
  std::vector<Value> more;
  if (arguments.positional.size() > count)
    more.assign(arguments.positional.begin() + static_cast<std::ptrdiff_t>(count),
                arguments.positional.end());
  if (!more.empty() && !parameters.uses_varargs)
    return refuse(str_cat("takes not more than ", count, " argument(s)"));
  if (parameters.uses_varargs) {
    TRY_ASSIGN(Value varargs, make_sequence(budget_, Sequence::Kind::kTuple, std::move(more)));
    scope_->set("varargs", std::move(varargs));
  }
  return {};
}

// loop(children): the body of a recursive loop over other items, as a text.
Result<Value> Interpreter::call_loop(const Loop& loop, const Arguments& arguments) {
  TRY_ASSIGN(const auto given, bind(arguments, "loop", {"iterable"}, 1));
  if (!loop.node->recursive || loop.scope == nullptr)
    return Error{ErrorCode::kUnsupported,
                 "the loop must have the 'recursive' marker to be called recursively"};
  TextBuilder builder(budget_.limits().max_output_bytes);
  TextBuilder* const outer = std::exchange(out_, &builder);
  const EnterScope scope(*this, loop.scope);
  const Result<Flow> ended = run_loop(*loop.node, *given[0], loop.depth + 1);
  out_ = outer;
  if (!ended) return ended.error();
  return make_text(budget_, builder);
}

Result<Value> Interpreter::call_global(GlobalFunction function, const Arguments& arguments) {
  switch (function) {
    case GlobalFunction::kRange:
      return call_range(arguments);
    case GlobalFunction::kNamespace:
      return call_namespace(arguments);
    case GlobalFunction::kDict: {
      TRY_ASSIGN(std::vector<Dict::Item> items, dict_items(arguments));
      return make_dict(budget_, std::move(items));
    }
    case GlobalFunction::kRaiseException: {
      TRY_ASSIGN(const auto given, bind(arguments, "raise_exception", {"message"}, 1));
      TRY_ASSIGN(const Value message, str(budget_, *given[0]));
      raised_ = true;
      return Error{ErrorCode::kInvalidArgument, message.text().bytes};
    }
    case GlobalFunction::kStrftimeNow:
      return call_strftime(arguments);
  }
  return Value();
}

Result<Value> Interpreter::call_range(const Arguments& arguments) {
  TRY_ASSIGN(const auto given, bind(arguments, "range", {"start", "stop", "step"}, 1));
  TRY_ASSIGN(int64_t start, integer_argument(given[0], "range", 0));
  TRY_ASSIGN(int64_t stop, integer_argument(given[1], "range", 0));
  TRY_ASSIGN(const int64_t step, integer_argument(given[2], "range", 1));
  if (given[1] == nullptr) stop = std::exchange(start, 0);
  if (step == 0) return Error{ErrorCode::kUnsupported, "range: the step must not be zero"};
  std::vector<Value> items;
  for (int64_t at = start; step > 0 ? at < stop : at > stop;) {
    if (static_cast<int64_t>(items.size()) == kMaxRange)
      return Error{ErrorCode::kResourceExhausted,
                   str_cat("range: more than ", kMaxRange, " items")};
    items.emplace_back(at);
    if (__builtin_add_overflow(at, step, &at)) break;
  }
  return make_range(budget_, {start, stop, step}, std::move(items));
}

Result<std::vector<Dict::Item>> Interpreter::dict_items(const Arguments& arguments) {
  std::vector<Dict::Item> items;
  for (const Value& mapping : arguments.positional) {
    if (!mapping.is_dict() || arguments.positional.size() > 1)
      return Error{ErrorCode::kUnsupported, "a dictionary is made of one mapping and named values"};
    TRY(budget_.spend_memory(
        static_cast<int64_t>(mapping.dict().items.size() * sizeof(Dict::Item))));
    items = mapping.dict().items;
  }
  for (const auto& [name, value] : arguments.named) {
    TRY_ASSIGN(Value key, make_text(budget_, Text::from_client(name)));
    items.emplace_back(std::move(key), value);
  }
  return items;
}

Result<Value> Interpreter::call_namespace(const Arguments& arguments) {
  TRY_ASSIGN(const std::vector<Dict::Item> items, dict_items(arguments));
  TRY(budget_.spend_memory(sizeof(Namespace)));
  Namespace& made = arena_.namespaces.emplace_back();
  for (const auto& [key, value] : items)
    if (key.is_string()) made.attributes.emplace_back(key.text().bytes, value);
  return Value(&made);
}

Result<Value> Interpreter::call_strftime(const Arguments& arguments) {
  TRY_ASSIGN(const auto given, bind(arguments, "strftime_now", {"format"}, 1));
  TRY_ASSIGN(const Text* text, text_argument(given[0], "strftime_now"));
  std::tm now{};
  if (local_time_) {
    now = *local_time_;
  } else {
    const std::time_t seconds = std::time(nullptr);
    localtime_r(&seconds, &now);
  }
  // A zero byte cannot occur in the result, and a leading mark tells "empty" from "too long".
  const std::string format = "." + text->bytes;
  std::vector<char> buffer(64 * 1024);
  const size_t size = std::strftime(buffer.data(), buffer.size(), format.c_str(), &now);
  if (size == 0) return budget_.too_long();
  return make_text(budget_, Text::from_client(std::string_view(buffer.data() + 1, size - 1)));
}

}  // namespace pewter::jinja
