// Where flags come from beside the command line: a configuration file, and the environment. Both
// become arguments like "--max-model-len=64k", so that every flag can be given in every way and
// there is one parser of values. The command line wins over the environment, that over the file.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace pewter {

using Arguments = std::vector<std::string>;

// The flags a configuration file sets. It is the part of YAML that vLLM's have:
//
//   max-model-len: 64k                       # a comment
//   enable-log-requests: true
//   served-model-name: [qwen, default]       or lines of "- qwen" below the key
//   speculative-config: {"method": "mtp"}    or lines of "  method: mtp" below the key
//
// Underscores count as hyphens; null sets nothing. `known` are the names of all flags, "--port".
// Errors: kInvalidArgument, "line 3: …".
Result<Arguments> config_arguments(std::string_view text, const Arguments& known);

// PEWTER_MAX_MODEL_LEN for --max-model-len. `variable` is getenv or the like.
Arguments environment_arguments(const Arguments& known,
                                const std::function<const char*(const char*)>& variable);

// The value of a flag among arguments, "--config FILE" or "--config=FILE", the last; "" without.
std::string value_of(std::string_view flag, const Arguments& arguments);

// `arguments` and behind them those of `lower` whose flags they do not name.
Arguments with_defaults(Arguments arguments, const Arguments& lower);

}  // namespace pewter
