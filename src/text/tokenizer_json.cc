#include "text/tokenizer_json.h"

#include <simdjson.h>

#include <algorithm>
#include <string>

#include "text/byte_level.h"

namespace pewter {
namespace {

namespace dom = simdjson::dom;

Error corrupt(std::string_view field, std::string_view what) {
  return Error{ErrorCode::kCorruptData, str_cat(field, ": ", what)};
}

Error unsupported(std::string_view field, std::string_view what) {
  return Error{ErrorCode::kUnsupported, str_cat(field, ": ", what, " is not supported")};
}

// The member of an object, or a null element when it is absent or null.
std::optional<dom::element> member(dom::element parent, std::string_view key) {
  dom::element value;
  if (parent.is_null() || parent.at_key(key).get(value) != simdjson::SUCCESS || value.is_null())
    return std::nullopt;
  return value;
}

Result<std::string_view> string_member(dom::element parent, std::string_view where,
                                       std::string_view key) {
  const auto value = member(parent, key);
  std::string_view text;
  if (!value || value->get(text) != simdjson::SUCCESS)
    return corrupt(str_cat(where, ".", key), "want a string");
  return text;
}

Result<bool> bool_member(dom::element parent, std::string_view where, std::string_view key,
                         bool fallback) {
  const auto value = member(parent, key);
  if (!value) return fallback;
  bool flag = false;
  if (value->get(flag) != simdjson::SUCCESS)
    return corrupt(str_cat(where, ".", key), "want true or false");
  return flag;
}

// A list of parts under key when parent is a "Sequence", parent itself otherwise.
Result<std::vector<dom::element>> sequence(dom::element parent, std::string_view where,
                                           std::string_view key) {
  TRY_ASSIGN(const std::string_view type, string_member(parent, where, "type"));
  if (type != "Sequence") return std::vector<dom::element>{parent};
  const auto list = member(parent, key);
  dom::array array;
  if (!list || list->get(array) != simdjson::SUCCESS)
    return corrupt(str_cat(where, ".", key), "want an array");
  return std::vector<dom::element>(array.begin(), array.end());
}

Status parse_normalizer(dom::element root, TokenizerParts& parts) {
  const auto normalizer = member(root, "normalizer");
  if (!normalizer) return {};
  TRY_ASSIGN(const auto steps, sequence(*normalizer, "normalizer", "normalizers"));
  for (const dom::element& step : steps) {
    TRY_ASSIGN(const std::string_view type, string_member(step, "normalizer", "type"));
    if (type != "NFC") return unsupported("normalizer.type", str_cat("\"", type, "\""));
    parts.nfc = true;
  }
  return {};
}

Status parse_split(dom::element step, TokenizerParts& parts) {
  const std::string_view where = "pre_tokenizer";
  TRY_ASSIGN(const std::string_view behavior, string_member(step, where, "behavior"));
  if (behavior != "Isolated")
    return unsupported("pre_tokenizer.behavior", str_cat("\"", behavior, "\""));
  TRY_ASSIGN(const bool invert, bool_member(step, where, "invert", false));
  if (invert) return unsupported("pre_tokenizer.invert", "true");
  const auto pattern = member(step, "pattern");
  if (!pattern || !member(*pattern, "Regex"))
    return unsupported("pre_tokenizer.pattern", "anything but {\"Regex\": …}");
  TRY_ASSIGN(const std::string_view regex,
             string_member(*pattern, "pre_tokenizer.pattern", "Regex"));
  auto compiled = PreSplit::compile(regex);
  if (!compiled) return compiled.error().within("pre_tokenizer.pattern.Regex");
  parts.pre_split = std::move(compiled).value();
  return {};
}

// [Split] ByteLevel, alone or in a Sequence.
Status parse_pre_tokenizer(dom::element root, TokenizerParts& parts) {
  const auto pre_tokenizer = member(root, "pre_tokenizer");
  if (!pre_tokenizer) return unsupported("pre_tokenizer", "null (want ByteLevel)");
  TRY_ASSIGN(const auto steps, sequence(*pre_tokenizer, "pre_tokenizer", "pretokenizers"));
  bool byte_level = false;
  for (const dom::element& step : steps) {
    TRY_ASSIGN(const std::string_view type, string_member(step, "pre_tokenizer", "type"));
    if (byte_level) return unsupported("pre_tokenizer", "a step after ByteLevel");
    if (type == "Split") {
      if (parts.pre_split) return unsupported("pre_tokenizer", "a second Split");
      TRY(parse_split(step, parts));
    } else if (type == "ByteLevel") {
      byte_level = true;
      TRY_ASSIGN(const bool prefix, bool_member(step, "pre_tokenizer", "add_prefix_space", true));
      if (prefix) return unsupported("pre_tokenizer.add_prefix_space", "true");
      TRY_ASSIGN(const bool use_regex, bool_member(step, "pre_tokenizer", "use_regex", true));
      if (use_regex) return unsupported("pre_tokenizer.use_regex", "true");
    } else {
      return unsupported("pre_tokenizer.type", str_cat("\"", type, "\""));
    }
  }
  if (!byte_level) return unsupported("pre_tokenizer", "a list without ByteLevel");
  return {};
}

Status parse_ends(dom::element root) {
  const auto decoder = member(root, "decoder");
  if (!decoder) return unsupported("decoder", "null (want ByteLevel)");
  TRY_ASSIGN(const std::string_view type, string_member(*decoder, "decoder", "type"));
  if (type != "ByteLevel") return unsupported("decoder.type", str_cat("\"", type, "\""));
  // ByteLevel as a post-processor only moves offsets, which we do not report.
  if (const auto post = member(root, "post_processor")) {
    TRY_ASSIGN(const std::string_view post_type, string_member(*post, "post_processor", "type"));
    if (post_type != "ByteLevel")
      return unsupported("post_processor.type", str_cat("\"", post_type, "\""));
  }
  for (const std::string_view key : {"truncation", "padding"})
    if (member(root, key)) return unsupported(key, "anything but null");
  return {};
}

Status parse_model_options(dom::element model, TokenizerParts& parts) {
  if (const auto type = member(model, "type")) {
    TRY_ASSIGN(const std::string_view name, string_member(model, "model", "type"));
    if (name != "BPE") return unsupported("model.type", str_cat("\"", name, "\""));
  }
  for (const std::string_view key : {"continuing_subword_prefix", "end_of_word_suffix"}) {
    if (!member(model, key)) continue;
    TRY_ASSIGN(const std::string_view affix, string_member(model, "model", key));
    if (!affix.empty()) return unsupported(str_cat("model.", key), str_cat("\"", affix, "\""));
  }
  if (const auto dropout = member(model, "dropout")) {
    double rate = 0;
    if (dropout->get(rate) != simdjson::SUCCESS || rate != 0)
      return unsupported("model.dropout", "anything but 0");
  }
  // unk_token, fuse_unk and byte_fallback deal with characters that have no token; every byte has.
  TRY_ASSIGN(parts.ignore_merges, bool_member(model, "model", "ignore_merges", false));
  return {};
}

Status parse_vocabulary(dom::element model, TokenizerParts& parts) {
  const auto value = member(model, "vocab");
  dom::object vocab;
  if (!value || value->get(vocab) != simdjson::SUCCESS)
    return corrupt("model.vocab", "want an object");
  size_t count = 0, text_bytes = 0;
  for (const auto& [text, id] : vocab) {
    ++count;
    text_bytes += text.size();
  }
  parts.vocabulary.reserve(count, text_bytes);
  for (const auto& [text, element] : vocab) {
    int64_t id = 0;
    if (element.get(id) != simdjson::SUCCESS)
      return corrupt(str_cat("model.vocab[\"", text, "\"]"), "want a token id");
    const Status added = parts.vocabulary.add(id, text, TokenSource::kModel);
    if (!added) return added.error().within("model.vocab");
  }

  for (int byte = 0; byte < 256; ++byte) {
    std::string stand_in;
    append_byte_level(stand_in, std::string(1, static_cast<char>(byte)));
    const auto id = parts.vocabulary.find(stand_in);
    // C0, C1 and F5–FF are in no UTF-8 text, so they may be missing.
    if (!id && byte != 0xC0 && byte != 0xC1 && byte < 0xF5)
      return corrupt("model.vocab", str_cat("no token for byte ", byte));
    parts.byte_ids[static_cast<size_t>(byte)] = id.value_or(-1);
  }
  return {};
}

struct MergeTexts {
  std::string_view left, right;
};

// Both spellings: "a b" and ["a", "b"].
Result<MergeTexts> parse_merge(dom::element element) {
  std::string_view line;
  if (element.get(line) == simdjson::SUCCESS) {
    const size_t blank = line.find(' ');
    if (blank == std::string_view::npos || line.find(' ', blank + 1) != std::string_view::npos)
      return Error{ErrorCode::kCorruptData, "want two tokens with a blank between them"};
    return MergeTexts{.left = line.substr(0, blank), .right = line.substr(blank + 1)};
  }
  dom::array pair;
  MergeTexts texts;
  if (element.get(pair) != simdjson::SUCCESS || pair.size() != 2 ||
      pair.at(0).get(texts.left) != simdjson::SUCCESS ||
      pair.at(1).get(texts.right) != simdjson::SUCCESS)
    return Error{ErrorCode::kCorruptData, "want two tokens"};
  return texts;
}

Status parse_merges(dom::element model, TokenizerParts& parts) {
  const auto value = member(model, "merges");
  dom::array merges;
  if (!value || value->get(merges) != simdjson::SUCCESS)
    return corrupt("model.merges", "want an array");
  std::string joined;
  uint32_t rank = 0;
  const Vocabulary& vocabulary = parts.vocabulary;
  std::vector<dom::element> elements(merges.begin(), merges.end());
  parts.merges.reserve(elements.size());
  for (size_t i = 0; i < elements.size(); ++i) {
    std::string_view line;
    if (elements[i].get(line) == simdjson::SUCCESS && line.starts_with("#version")) continue;
    const auto where = [&] { return str_cat("model.merges[", i, "]"); };
    auto texts = parse_merge(elements[i]);
    if (!texts) return texts.error().within(where());
    const auto [left, right] = texts.value();
    joined.assign(left);
    joined += right;
    const auto left_id = vocabulary.find(left);
    const auto right_id = vocabulary.find(right);
    const auto merged_id = vocabulary.find(joined);
    if (!left_id || !right_id || !merged_id)
      return corrupt(where(), str_cat("\"",
                                      !left_id    ? left
                                      : !right_id ? right
                                                  : joined,
                                      "\" is not in model.vocab"));
    parts.merges.add({.left = *left_id, .right = *right_id}, {.rank = rank++, .id = *merged_id});
  }
  return {};
}

Status parse_added_token(dom::element element, std::string_view where, TokenizerParts& parts) {
  AddedToken token;
  const auto id = member(element, "id");
  int64_t number = 0;
  if (!id || id->get(number) != simdjson::SUCCESS || number < 0 || number > kMaxTokenId)
    return corrupt(str_cat(where, ".id"), str_cat("want an integer from 0 to ", kMaxTokenId));
  token.id = static_cast<int32_t>(number);
  TRY_ASSIGN(const std::string_view content, string_member(element, where, "content"));
  if (content.empty()) return corrupt(str_cat(where, ".content"), "empty");
  token.content = content;
  TRY_ASSIGN(token.special, bool_member(element, where, "special", false));
  TRY_ASSIGN(token.normalized, bool_member(element, where, "normalized", !token.special));
  TRY_ASSIGN(token.lstrip, bool_member(element, where, "lstrip", false));
  TRY_ASSIGN(token.rstrip, bool_member(element, where, "rstrip", false));
  TRY_ASSIGN(token.single_word, bool_member(element, where, "single_word", false));

  // The same token under the same id may be in the model's vocabulary too.
  const auto known = parts.vocabulary.find(content);
  if (!known || *known != token.id) {
    const Status added = parts.vocabulary.add(token.id, content, TokenSource::kAdded);
    if (!added) return added.error().within(where);
  }
  parts.added.push_back(std::move(token));
  return {};
}

Status parse_added(dom::element root, TokenizerParts& parts) {
  const auto value = member(root, "added_tokens");
  if (!value) return {};
  dom::array tokens;
  if (value->get(tokens) != simdjson::SUCCESS) return corrupt("added_tokens", "want an array");
  size_t index = 0;
  for (const dom::element element : tokens)
    TRY(parse_added_token(element, str_cat("added_tokens[", index++, "]"), parts));
  std::sort(parts.added.begin(), parts.added.end(),
            [](const AddedToken& a, const AddedToken& b) { return a.id < b.id; });
  for (size_t i = 1; i < parts.added.size(); ++i)
    if (parts.added[i].id == parts.added[i - 1].id)
      return corrupt("added_tokens", str_cat("token id ", parts.added[i].id, " is given twice"));
  return {};
}

}  // namespace

Result<TokenizerParts> parse_tokenizer_json(std::string_view json) {
  dom::parser parser;
  dom::element root;
  const auto error = parser.parse(json.data(), json.size()).get(root);
  if (error != simdjson::SUCCESS)
    return Error{ErrorCode::kCorruptData, simdjson::error_message(error)};
  if (!root.is_object()) return Error{ErrorCode::kCorruptData, "want an object"};
  const auto model = member(root, "model");
  if (!model || !model->is_object()) return corrupt("model", "want an object");
  TokenizerParts parts;
  TRY(parse_model_options(*model, parts));
  TRY(parse_normalizer(root, parts));
  TRY(parse_pre_tokenizer(root, parts));
  TRY(parse_ends(root));
  TRY(parse_vocabulary(*model, parts));
  TRY(parse_merges(*model, parts));
  TRY(parse_added(root, parts));
  return parts;
}

}  // namespace pewter
