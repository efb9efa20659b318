#include "text/tokenizer_config.h"

#include <algorithm>
#include <charconv>

#include "base/json.h"
#include "text/tokenizer_vocabulary.h"

namespace pewter {
namespace {

Error corrupt(std::string_view field, std::string_view what) {
  return Error{ErrorCode::kCorruptData, str_cat(field, ": ", what)};
}

const Json* present(const Json& parent, std::string_view key) {
  const Json* value = parent.find(key);
  return value == nullptr || value->is_null() ? nullptr : value;
}

// A token is its text, or an object with the text under "content".
Status parse_token(const Json& root, std::string_view key, std::optional<std::string>& out) {
  const Json* value = present(root, key);
  if (value == nullptr) return {};
  if (value->is_object()) value = value->find("content");
  if (value == nullptr || !value->is_string()) return corrupt(key, "want a token");
  out = value->as_string();
  return {};
}

Status parse_flag(const Json& token, std::string_view where, std::string_view key, bool& out) {
  const Json* value = present(token, key);
  if (value == nullptr) return {};
  if (!value->is_bool()) return corrupt(str_cat(where, ".", key), "want true or false");
  out = value->as_bool();
  return {};
}

Status parse_added_tokens(const Json& root, std::vector<AddedToken>& out) {
  const Json* list = present(root, "added_tokens_decoder");
  if (list == nullptr) return {};
  if (!list->is_object()) return corrupt("added_tokens_decoder", "want an object");
  for (const auto& [key, value] : list->as_object()) {
    const std::string where = str_cat("added_tokens_decoder.", key);
    AddedToken token;
    const auto parsed = std::from_chars(key.data(), key.data() + key.size(), token.id);
    if (parsed.ec != std::errc() || parsed.ptr != key.data() + key.size() || token.id < 0 ||
        token.id > kMaxTokenId)
      return corrupt(where, "the key is no token id");
    const Json* content = value.find("content");
    if (content == nullptr || !content->is_string() || content->as_string().empty())
      return corrupt(where, "want a content");
    token.content = content->as_string();
    TRY(parse_flag(value, where, "special", token.special));
    token.normalized = !token.special;
    TRY(parse_flag(value, where, "normalized", token.normalized));
    TRY(parse_flag(value, where, "lstrip", token.lstrip));
    TRY(parse_flag(value, where, "rstrip", token.rstrip));
    TRY(parse_flag(value, where, "single_word", token.single_word));
    out.push_back(std::move(token));
  }
  std::sort(out.begin(), out.end(),
            [](const AddedToken& a, const AddedToken& b) { return a.id < b.id; });
  return {};
}

Status parse_chat_templates(const Json& root, std::vector<NamedTemplate>& out) {
  const Json* value = present(root, "chat_template");
  if (value == nullptr) return {};
  if (value->is_string()) {
    out.push_back({.name = "default", .source = value->as_string()});
    return {};
  }
  if (!value->is_array()) return corrupt("chat_template", "want a string or an array");
  for (const Json& entry : value->as_array()) {
    const Json* name = entry.find("name");
    const Json* source = entry.find("template");
    if (name == nullptr || !name->is_string() || source == nullptr || !source->is_string())
      return corrupt("chat_template", "an entry wants a name and a template");
    out.push_back({.name = name->as_string(), .source = source->as_string()});
  }
  return {};
}

}  // namespace

Result<TokenizerConfig> parse_tokenizer_config(std::string_view json) {
  TRY_ASSIGN(const Json root, Json::parse(json));
  if (!root.is_object()) return Error{ErrorCode::kCorruptData, "want an object"};
  TokenizerConfig config;
  TRY(parse_token(root, "bos_token", config.bos_token));
  TRY(parse_token(root, "eos_token", config.eos_token));
  TRY(parse_token(root, "pad_token", config.pad_token));
  if (const Json* length = present(root, "model_max_length")) {
    if (!length->is_number()) return corrupt("model_max_length", "want a number");
    // "No limit" is written as 1e30, an integer or a float far outside what a context can be.
    if (length->is_integer()) {
      if (length->as_integer() <= 0) return corrupt("model_max_length", "want a positive number");
      config.model_max_length = length->as_integer();
    }
  }
  TRY(parse_added_tokens(root, config.added_tokens));
  TRY(parse_chat_templates(root, config.chat_templates));
  return config;
}

}  // namespace pewter
