// Cuts a template into tokens. The stretches between tags come out as text with the whitespace
// rules already applied: trim_blocks and lstrip_blocks are on, as in the environment that Hugging
// Face renders chat templates with.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace pewter::jinja {

struct Token {
  enum class Kind {
    kText,
    kOutputBegin,  // {{
    kOutputEnd,
    kBlockBegin,  // {%
    kBlockEnd,
    kName,
    kString,   // text holds the value, escapes resolved
    kInteger,  // text holds decimal digits
    kFloat,
    kOperator,
    kEnd
  };
  Kind kind = Kind::kEnd;
  std::string text;
  int line = 1;
};

// Errors: kCorruptData, "line 12: …".
Result<std::vector<Token>> tokenize(std::string_view source);

}  // namespace pewter::jinja
