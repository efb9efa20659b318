// Matching the arguments of a call to the parameters of a built-in.
#pragma once

#include <string_view>
#include <vector>

#include "base/result.h"
#include "text/jinja/runtime.h"

namespace pewter::jinja {

// One entry a parameter, null where the call gives nothing. The pointers are into `arguments`.
// Errors: an unknown name, too many arguments, one given twice, fewer than `required`.
Result<std::vector<const Value*>> bind(const Arguments& arguments, std::string_view callee,
                                       const std::vector<std::string_view>& parameters,
                                       size_t required = 0);

// Typed reading of one argument; an absent one has the given value.
Result<int64_t> integer_argument(const Value* value, std::string_view name, int64_t otherwise);
Result<bool> flag_argument(const Value* value, bool otherwise);
// A string argument; null stays null.
Result<const Text*> text_argument(const Value* value, std::string_view name);

}  // namespace pewter::jinja
