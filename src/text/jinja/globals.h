// The functions every template can name: range, namespace, dict, raise_exception, strftime_now.
#pragma once

#include <optional>
#include <string_view>

#include "text/jinja/value.h"

namespace pewter::jinja {

std::optional<GlobalFunction> find_global(std::string_view name);

}  // namespace pewter::jinja
