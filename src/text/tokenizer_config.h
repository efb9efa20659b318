// Reads tokenizer_config.json: what a serving stack needs to know beside tokenizer.json.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "text/tokenizer_added.h"

namespace pewter {

struct NamedTemplate {
  std::string name;  // "default" for the usual one
  std::string source;
};

struct TokenizerConfig {
  std::optional<std::string> bos_token, eos_token, pad_token;  // token texts
  std::optional<int64_t> model_max_length;    // absent too when the file says "no limit" (1e30)
  std::vector<NamedTemplate> chat_templates;  // embedded ones; a chat_template.jinja file wins
  std::vector<AddedToken> added_tokens;       // of added_tokens_decoder, ascending ids
};

// Errors: kCorruptData, naming the field.
Result<TokenizerConfig> parse_tokenizer_config(std::string_view json);

}  // namespace pewter
