// The Jinja engine's front: parse once, render many times. A Template never changes after it was
// parsed; any number of threads may render it at once.
//
// The language is Jinja2 as Hugging Face sets it up for chat templates: blocks trimmed, a sandbox
// that changes no value, break and continue, json.dumps behind tojson.
#pragma once

#include <ctime>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/json.h"
#include "base/result.h"
#include "text/jinja/limits.h"
#include "text/jinja/value.h"

namespace pewter::jinja {

struct Program;  // the parsed tree

class Template {
 public:
  // Errors: kCorruptData or kUnsupported, "line 12: …".
  static Result<Template> parse(std::string_view source);

  struct Variable {
    std::string_view name;
    const Json* value;
    Origin origin = Origin::kClient;
  };
  // Errors: kInvalidArgument with the text of raise_exception and nothing else; kResourceExhausted
  // past a limit and kUnsupported for what fails otherwise, both "line 12: …".
  // Of two variables with one name the later counts. local_time is what strftime_now tells; the
  // clock's when absent.
  Result<Text> render(const std::vector<Variable>& variables,
                      const std::optional<std::tm>& local_time, const RenderLimits& limits) const;

 private:
  explicit Template(std::shared_ptr<const Program> program) : program_(std::move(program)) {}
  std::shared_ptr<const Program> program_;
};

}  // namespace pewter::jinja
