#include "text/jinja/arguments.h"

#include <algorithm>

#include "text/jinja/arithmetic.h"

namespace pewter::jinja {
namespace {

Error wrong(std::string_view callee, std::string_view what, std::string_view name = "") {
  return Error{ErrorCode::kUnsupported, name.empty()
                                            ? str_cat(callee, ": ", what)
                                            : str_cat(callee, ": ", what, " '", name, "'")};
}

}  // namespace

Result<std::vector<const Value*>> bind(const Arguments& arguments, std::string_view callee,
                                       const std::vector<std::string_view>& parameters,
                                       size_t required) {
  std::vector<const Value*> out(parameters.size(), nullptr);
  if (arguments.positional.size() > parameters.size()) return wrong(callee, "too many arguments");
  for (size_t i = 0; i < arguments.positional.size(); ++i) out[i] = &arguments.positional[i];
  for (const auto& [name, value] : arguments.named) {
    const auto at = std::find(parameters.begin(), parameters.end(), name);
    if (at == parameters.end()) return wrong(callee, "unknown argument", name);
    const Value*& slot = out[static_cast<size_t>(at - parameters.begin())];
    if (slot != nullptr) return wrong(callee, "argument given twice:", name);
    slot = &value;
  }
  for (size_t i = 0; i < required; ++i)
    if (out[i] == nullptr) return wrong(callee, "missing argument", parameters[i]);
  return out;
}

Result<int64_t> integer_argument(const Value* value, std::string_view name, int64_t otherwise) {
  if (value == nullptr) return otherwise;
  if (value->is_undefined()) return undefined_error(*value);
  if (!value->is_int64()) return wrong(name, "wants an integer");
  return value->as_int64();
}

Result<bool> flag_argument(const Value* value, bool otherwise) {
  return value == nullptr ? otherwise : value->truthy();
}

Result<const Text*> text_argument(const Value* value, std::string_view name) {
  if (value == nullptr) return static_cast<const Text*>(nullptr);
  if (value->is_undefined()) return undefined_error(*value);
  if (!value->is_string()) return wrong(name, "wants a string");
  return &value->text();
}

}  // namespace pewter::jinja
