#include "text/tokenizer.h"

#include <algorithm>
#include <filesystem>

#include "base/file.h"
#include "base/utf8.h"
#include "text/byte_level.h"
#include "text/nfc.h"
#include "text/tokenizer_json.h"

namespace pewter {
namespace {

constexpr size_t kTextLimitBytes = size_t{1}
                                   << 30;  // NFC may triple it, and merging counts in 32 bits

// Text made valid, with the foreign ranges moved along. A range that begins or ends inside a
// character grows to cover it: a character with one foreign byte is foreign.
struct ValidText {
  std::string text;
  std::vector<ByteRange> foreign;
};

ValidText make_valid(std::string_view text, std::span<const ByteRange> foreign) {
  ValidText valid;
  valid.text.reserve(text.size());
  for (size_t at = 0; at < text.size();) {
    const Utf8Step step = utf8_next(text.substr(at));
    const ByteRange source{.begin = at, .end = at + static_cast<size_t>(step.length)};
    ByteRange target{.begin = valid.text.size()};
    append_utf8(valid.text, step.code_point);
    target.end = valid.text.size();
    if (overlaps_any(source, foreign)) {
      if (!valid.foreign.empty() && valid.foreign.back().end == target.begin)
        valid.foreign.back().end = target.end;
      else
        valid.foreign.push_back(target);
    }
    at = source.end;
  }
  return valid;
}

// The foreign ranges of text[range], as offsets into it.
std::vector<ByteRange> clip(std::span<const ByteRange> foreign, ByteRange range) {
  std::vector<ByteRange> clipped;
  for (const ByteRange& f : foreign) {
    const size_t begin = std::max(f.begin, range.begin), end = std::min(f.end, range.end);
    if (begin < end) clipped.push_back({.begin = begin - range.begin, .end = end - range.begin});
  }
  return clipped;
}

// Adds the tokens that only tokenizer_config.json lists (later releases of a model do that).
Status merge_added_tokens(const TokenizerConfig& config, TokenizerParts& parts) {
  for (const AddedToken& token : config.added_tokens) {
    const auto where = [&] { return str_cat("added_tokens_decoder.", token.id); };
    const auto known = std::lower_bound(parts.added.begin(), parts.added.end(), token.id,
                                        [](const AddedToken& a, int32_t id) { return a.id < id; });
    if (known != parts.added.end() && known->id == token.id) {
      if (known->content == token.content) continue;  // tokenizer.json's flags win
      return Error{ErrorCode::kCorruptData, str_cat(where(), ": \"", token.content, "\" is \"",
                                                    known->content, "\" in tokenizer.json")};
    }
    if (parts.vocabulary.find(token.content) != token.id) {
      const Status added = parts.vocabulary.add(token.id, token.content, TokenSource::kAdded);
      if (!added) return added.error().within(where());
    }
    parts.added.insert(known, token);
  }
  return {};
}

}  // namespace

struct Tokenizer::Impl {
  TokenizerParts parts;
  TokenizerConfig config;
  std::optional<int32_t> eos_id;
  AddedTokenMatcher raw_tokens, normalized_tokens;
  std::vector<uint8_t> added, special;  // by id

  // What one call of encode needs.
  struct Scratch {
    std::optional<PreSplit::Matcher> matcher;
    std::vector<size_t> piece_ends;
    std::vector<int32_t> piece;
    std::string stand_ins;
    PieceMerger merger;
    std::vector<int32_t> ids;  // the answer
  };

  Result<std::vector<int32_t>> encode(std::string_view text, AddedTokenFilter filter) const;
  Status encode_normalized(std::string_view text, Scratch& scratch) const;
  void encode_piece(std::string_view piece, Scratch& scratch) const;
};

Result<std::vector<int32_t>> Tokenizer::Impl::encode(std::string_view text,
                                                     AddedTokenFilter filter) const {
  if (text.size() >= kTextLimitBytes)
    return Error{ErrorCode::kInvalidArgument, "text to tokenize has 1 GiB or more"};
  ValidText valid;
  if (!is_valid_utf8(text)) {
    valid = make_valid(text, filter.foreign);
    text = valid.text;
    filter.foreign = valid.foreign;
  }
  Scratch scratch;
  if (parts.pre_split) scratch.matcher.emplace(*parts.pre_split);
  std::vector<AddedSpan> spans, inner_spans;
  raw_tokens.split(text, filter, spans);
  for (const AddedSpan& span : spans) {
    if (span.id >= 0) {
      scratch.ids.push_back(span.id);
      continue;
    }
    std::string_view plain = text.substr(span.range.begin, span.range.end - span.range.begin);
    std::string composed;
    const bool unchanged = !parts.nfc || is_trivially_nfc(plain);
    if (!unchanged) {
      TRY_ASSIGN(composed, to_nfc(plain));
    }
    if (normalized_tokens.empty()) {
      TRY(encode_normalized(unchanged ? plain : composed, scratch));
      continue;
    }
    std::vector<ByteRange> foreign = clip(filter.foreign, span.range);
    if (!unchanged) {
      plain = composed;
      // Offsets may have moved; a span with any foreign byte counts as foreign throughout.
      if (!foreign.empty()) foreign = {{.begin = 0, .end = plain.size()}};
    }
    inner_spans.clear();
    normalized_tokens.split(plain, {.none = filter.none, .foreign = foreign}, inner_spans);
    for (const AddedSpan& inner : inner_spans) {
      if (inner.id >= 0)
        scratch.ids.push_back(inner.id);
      else
        TRY(encode_normalized(plain.substr(inner.range.begin, inner.range.end - inner.range.begin),
                              scratch));
    }
  }
  return std::move(scratch.ids);
}

Status Tokenizer::Impl::encode_normalized(std::string_view text, Scratch& scratch) const {
  if (!scratch.matcher) {
    encode_piece(text, scratch);
    return {};
  }
  TRY(scratch.matcher->split(text, scratch.piece_ends));
  size_t begin = 0;
  for (const size_t end : scratch.piece_ends) {
    encode_piece(text.substr(begin, end - begin), scratch);
    begin = end;
  }
  return {};
}

void Tokenizer::Impl::encode_piece(std::string_view piece, Scratch& scratch) const {
  if (parts.ignore_merges) {
    scratch.stand_ins.clear();
    append_byte_level(scratch.stand_ins, piece);
    const auto whole = parts.vocabulary.find(scratch.stand_ins);
    if (whole && parts.vocabulary.source(*whole) == TokenSource::kModel) {
      scratch.ids.push_back(*whole);
      return;
    }
  }
  scratch.piece.clear();
  for (const char byte : piece)
    scratch.piece.push_back(parts.byte_ids[static_cast<unsigned char>(byte)]);
  scratch.merger.merge(parts.merges, scratch.piece);
  scratch.ids.insert(scratch.ids.end(), scratch.piece.begin(), scratch.piece.end());
}

Result<Tokenizer> Tokenizer::load(const std::string& path) {
  namespace fs = std::filesystem;
  std::error_code ignored;
  fs::path file = path;
  if (fs::is_directory(file, ignored)) file /= "tokenizer.json";
  TRY_ASSIGN(const std::string tokenizer_json, read_file(file.string()));
  std::string config_json;
  const fs::path config_file = fs::path(file).replace_filename("tokenizer_config.json");
  if (fs::exists(config_file, ignored)) {
    TRY_ASSIGN(config_json, read_file(config_file.string()));
  }
  auto tokenizer = parse(tokenizer_json, config_json);
  if (!tokenizer) return tokenizer.error().within(file.parent_path().string());
  return tokenizer;
}

Result<Tokenizer> Tokenizer::parse(std::string_view tokenizer_json, std::string_view config_json) {
  auto impl = std::make_unique<Impl>();
  auto parts = parse_tokenizer_json(tokenizer_json);
  if (!parts) return parts.error().within("tokenizer.json");
  impl->parts = std::move(parts).value();
  if (!config_json.empty()) {
    auto config = parse_tokenizer_config(config_json);
    if (!config) return config.error().within("tokenizer_config.json");
    impl->config = std::move(config).value();
    const Status merged = merge_added_tokens(impl->config, impl->parts);
    if (!merged) return merged.error().within("tokenizer_config.json");
  }
  const Vocabulary& vocabulary = impl->parts.vocabulary;
  if (const auto& eos = impl->config.eos_token) {
    impl->eos_id = vocabulary.find(*eos);
    if (!impl->eos_id)
      return Error{ErrorCode::kCorruptData,
                   str_cat("tokenizer_config.json: eos_token: there is no token \"", *eos, "\"")};
  }
  impl->added.assign(static_cast<size_t>(vocabulary.size()), 0);
  impl->special = impl->added;
  for (const AddedToken& token : impl->parts.added) {
    impl->added[static_cast<size_t>(token.id)] = 1;
    impl->special[static_cast<size_t>(token.id)] = token.special;
    if (!token.normalized) {
      impl->raw_tokens.add(token);
    } else {
      // The reference spells such a token in its normalised form from then on, decoding included.
      TRY_ASSIGN(const std::string content, to_nfc(token.content));
      if (impl->parts.nfc && content != token.content)
        return Error{ErrorCode::kUnsupported,
                     str_cat("tokenizer.json: added token ", token.id, " (\"", token.content,
                             "\") is normalized and not in the normaliser's form: not supported")};
      impl->normalized_tokens.add(token);
    }
  }
  return Tokenizer(std::move(impl));
}

Tokenizer::Tokenizer(std::unique_ptr<const Impl> impl) : impl_(std::move(impl)) {}
Tokenizer::Tokenizer(Tokenizer&&) noexcept = default;
Tokenizer& Tokenizer::operator=(Tokenizer&&) noexcept = default;
Tokenizer::~Tokenizer() = default;

Result<std::vector<int32_t>> Tokenizer::encode(std::string_view text, AddedTokens mode) const {
  const ByteRange all{.begin = 0, .end = text.size()};
  AddedTokenFilter filter{.none = mode == AddedTokens::kNone};
  if (mode == AddedTokens::kNotSpecial) filter.foreign = {&all, 1};
  return impl_->encode(text, filter);
}

Result<std::vector<int32_t>> Tokenizer::encode_prompt(std::string_view text,
                                                      std::span<const ByteRange> foreign) const {
  size_t end = 0;
  for (const ByteRange& range : foreign) {
    CHECK(range.begin >= end && range.begin <= range.end && range.end <= text.size(),
          "foreign range ", range.begin, "…", range.end, " after ", end, " of ", text.size());
    end = range.end;
  }
  return impl_->encode(text, {.foreign = foreign});
}

std::string Tokenizer::decode(std::span<const int32_t> ids, bool skip_special) const {
  std::string bytes;
  for (const int32_t id : ids)
    if (!skip_special || !is_special(id)) bytes += bytes_of(id);
  return is_valid_utf8(bytes) ? bytes : replace_invalid_utf8(bytes);
}

int32_t Tokenizer::vocab_size() const { return impl_->parts.vocabulary.size(); }
bool Tokenizer::has(int32_t id) const { return impl_->parts.vocabulary.has(id); }
bool Tokenizer::is_added(int32_t id) const {
  return has(id) && impl_->added[static_cast<size_t>(id)] != 0;
}
bool Tokenizer::is_special(int32_t id) const {
  return has(id) && impl_->special[static_cast<size_t>(id)] != 0;
}
std::optional<int32_t> Tokenizer::id_of(std::string_view token_text) const {
  return impl_->parts.vocabulary.find(token_text);
}
std::string_view Tokenizer::text_of(int32_t id) const { return impl_->parts.vocabulary.text(id); }
std::string_view Tokenizer::bytes_of(int32_t id) const { return impl_->parts.vocabulary.bytes(id); }
const TokenizerConfig& Tokenizer::config() const { return impl_->config; }
std::optional<int32_t> Tokenizer::eos_id() const { return impl_->eos_id; }
std::span<const AddedToken> Tokenizer::added_tokens() const { return impl_->parts.added; }

}  // namespace pewter
