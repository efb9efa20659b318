// Text of a stream of tokens, in complete characters only: a character's bytes may be spread over
// several tokens, and none of it is shown before the last has come. Everything given out is valid
// UTF-8, whatever a model samples; all parts together are what Tokenizer::decode gives at once.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "text/tokenizer.h"

namespace pewter {

// The same for bytes. Ill-formed bytes (stray, overlong, surrogates) become U+FFFD, one per maximal
// ill-formed part, as soon as it is certain that they are.
class Utf8Assembler {
 public:
  // The text that is complete now.
  std::string push(std::string_view bytes);
  // One U+FFFD when bytes are held back, "" otherwise. Ready for a new stream after that.
  std::string flush();
  bool holds_back() const { return !pending_.empty(); }

 private:
  std::string pending_;  // at most 3 bytes: the beginning of a character
};

class IncrementalDetokenizer {
 public:
  // The tokenizer must outlive this.
  IncrementalDetokenizer(const Tokenizer& tokenizer, bool skip_special)
      : tokenizer_(&tokenizer), skip_special_(skip_special) {}

  std::string push(int32_t id);  // "" for ids without a token
  std::string flush() { return assembler_.flush(); }
  bool holds_back() const { return assembler_.holds_back(); }

 private:
  const Tokenizer* tokenizer_;
  bool skip_special_;
  Utf8Assembler assembler_;
};

}  // namespace pewter
