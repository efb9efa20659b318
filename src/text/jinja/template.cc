#include "text/jinja/template.h"

#include "text/jinja/interpreter.h"
#include "text/jinja/parser.h"

namespace pewter::jinja {

struct Program {
  Block block;
};

Result<Template> Template::parse(std::string_view source) {
  TRY_ASSIGN(Block block, parse_template(source));
  return Template(std::make_shared<const Program>(Program{std::move(block)}));
}

Result<Text> Template::render(const std::vector<Variable>& variables,
                              const std::optional<std::tm>& local_time,
                              const RenderLimits& limits) const {
  Budget budget(limits);
  std::vector<Dict::Item> values;
  for (const auto& [name, json, origin] : variables) {
    TRY_ASSIGN(Value value, from_json(budget, *json, origin));
    values.emplace_back(Value::authored(name), std::move(value));
  }
  Interpreter interpreter(budget, local_time);
  Result<Text> text = interpreter.render(program_->block, std::move(values));
  // Without a line it was the inputs that passed a limit.
  if (text || interpreter.raised() || interpreter.failed_line() == 0) return text;
  return text.error().within(str_cat("line ", interpreter.failed_line()));
}

}  // namespace pewter::jinja
