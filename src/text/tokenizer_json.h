// Reads tokenizer.json: the parts of a byte-level BPE tokenizer, checked and ready to use. Anything
// the file asks for that this engine would do differently is an error that names the field.
#pragma once

#include <array>
#include <optional>
#include <string_view>
#include <vector>

#include "text/pre_split.h"
#include "text/tokenizer_added.h"
#include "text/tokenizer_merges.h"
#include "text/tokenizer_vocabulary.h"

namespace pewter {

struct TokenizerParts {
  Vocabulary vocabulary;  // of the model, and the added tokens
  MergeTable merges;
  std::array<int32_t, 256> byte_ids{};  // the token of a single byte
  bool ignore_merges = false;           // a piece that is a token of the model is not merged
  bool nfc = false;
  std::optional<PreSplit> pre_split;  // none: text between added tokens is one piece
  std::vector<AddedToken> added;      // ascending ids
};

// Errors: kCorruptData for a broken file, kUnsupported for a tokenizer of another kind.
Result<TokenizerParts> parse_tokenizer_json(std::string_view json);

}  // namespace pewter
