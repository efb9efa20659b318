// Text to token ids and back, as the Hugging Face tokenizers library does it for byte-level BPE
// models (Qwen3.5): added tokens are found in the raw text, what lies between them is normalised to
// NFC, cut into pieces by a regular expression, and each piece's bytes are merged by rank. No
// beginning or end tokens are added. Reading order: encode_spans in tokenizer.cc, then
// tokenizer_added.h, nfc.h, pre_split.h, tokenizer_merges.h; tokenizer_json.h reads the file.
//
// Known differences from the reference: letters, marks and numbers newer than Unicode 14 are split
// as symbols (tests/golden/text/tokenizer_newer_differences.txt), and an added token that is not
// allowed here (AddedTokens) does not hide the ones it overlaps.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "text/byte_range.h"
#include "text/tokenizer_config.h"

namespace pewter {

// Which added tokens are recognised in a text; the others are encoded as ordinary characters.
enum class AddedTokens {
  kAll,         // raw access: whoever wrote the text may write control tokens
  kNotSpecial,  // text of a client: <think> and <tool_call>, but no <|im_end|>
  kNone,
};

// Immutable once loaded: all methods may be called from several threads at once.
class Tokenizer {
 public:
  // Reads DIRECTORY/tokenizer.json (or the file with that path) and the tokenizer_config.json
  // beside it, if there is one. Errors: kNotFound; kCorruptData and kUnsupported name file and
  // field.
  static Result<Tokenizer> load(const std::string& path);
  // The same from the two files' contents; config_json may be empty.
  static Result<Tokenizer> parse(std::string_view tokenizer_json, std::string_view config_json);

  Tokenizer(Tokenizer&&) noexcept;
  Tokenizer& operator=(Tokenizer&&) noexcept;
  ~Tokenizer();

  // The ids of text. Bytes that are not UTF-8 become U+FFFD first, one per maximal ill-formed part,
  // as Python's errors="replace" would give the reference.
  // Errors: kInvalidArgument for 1 GiB and more, kResourceExhausted when the splitting expression
  // backtracks without end (not with Qwen's).
  Result<std::vector<int32_t>> encode(std::string_view text,
                                      AddedTokens mode = AddedTokens::kAll) const;
  // The ids of a rendered prompt. Special tokens are recognised only where none of their bytes lies
  // in a foreign range; the other added tokens everywhere. Pieces and merges do not see the ranges:
  // without special tokens in foreign text, the ids are those of encode(text).
  // foreign must be sorted, without overlaps and within text (CHECKed). Errors: as encode.
  Result<std::vector<int32_t>> encode_prompt(std::string_view text,
                                             std::span<const ByteRange> foreign) const;
  // Always valid UTF-8: broken bytes become U+FFFD. Ids without a token are left out, as are
  // special tokens if skip_special. For streams: IncrementalDetokenizer (detokenizer.h).
  std::string decode(std::span<const int32_t> ids, bool skip_special) const;

  int32_t vocab_size() const;  // largest id + 1; a model's matrices may have more rows
  bool has(int32_t id) const;  // false for ids in no table: they must never be sampled
  bool is_added(int32_t id) const;
  bool is_special(int32_t id) const;
  // The id of a token by its text as tokenizer.json spells it: "<|im_end|>", "Ġthe".
  std::optional<int32_t> id_of(std::string_view token_text) const;
  std::string_view text_of(int32_t id) const;   // that spelling; "" without a token
  std::string_view bytes_of(int32_t id) const;  // what it decodes to; "" without a token

  const TokenizerConfig& config() const;
  std::optional<int32_t> eos_id() const;             // of config().eos_token
  std::span<const AddedToken> added_tokens() const;  // ascending ids

 private:
  struct Impl;
  explicit Tokenizer(std::unique_ptr<const Impl> impl);
  std::unique_ptr<const Impl> impl_;
};

}  // namespace pewter
