#include "text/detokenizer.h"

#include "base/utf8.h"

namespace pewter {

std::string Utf8Assembler::push(std::string_view bytes) {
  pending_ += bytes;
  std::string text;
  std::string_view rest = pending_;
  while (!rest.empty()) {
    const Utf8Step step = utf8_next(rest);
    if (step.truncated) break;
    append_utf8(text, step.code_point);
    rest.remove_prefix(static_cast<size_t>(step.length));
  }
  pending_.erase(0, pending_.size() - rest.size());
  return text;
}

std::string Utf8Assembler::flush() {
  std::string text;
  if (!pending_.empty()) append_utf8(text, kReplacementCharacter);
  pending_.clear();
  return text;
}

std::string IncrementalDetokenizer::push(int32_t id) {
  if (skip_special_ && tokenizer_->is_special(id)) return {};
  return assembler_.push(tokenizer_->bytes_of(id));
}

}  // namespace pewter
