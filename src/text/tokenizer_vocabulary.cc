#include "text/tokenizer_vocabulary.h"

#include <bit>
#include <functional>

#include "text/byte_level.h"

namespace pewter {

void Vocabulary::reserve(size_t token_count, size_t text_bytes) {
  entries_.reserve(token_count);
  texts_.reserve(text_bytes);
  bytes_.reserve(text_bytes);
  slots_.assign(std::bit_ceil(2 * token_count + 16), -1);
}

Status Vocabulary::add(int64_t id, std::string_view text, TokenSource source) {
  if (id < 0 || id > kMaxTokenId)
    return Error{ErrorCode::kCorruptData, str_cat("token id ", id, " is out of range")};
  if (has(static_cast<int32_t>(id)))
    return Error{ErrorCode::kCorruptData, str_cat("token id ", id, " is given twice")};
  if (2 * (count_ + 1) > slots_.size()) grow();
  const size_t slot = slot_of(text);
  if (slots_[slot] >= 0)
    return Error{ErrorCode::kCorruptData, str_cat("token \"", text, "\" is given twice")};
  const std::string bytes = byte_level_bytes(text);
  if (texts_.size() + text.size() > UINT32_MAX)
    return Error{ErrorCode::kCorruptData, "more than 4 GiB of token text"};

  slots_[slot] = static_cast<int32_t>(id);
  ++count_;
  const auto index = static_cast<size_t>(id);
  if (index >= entries_.size()) entries_.resize(index + 1);
  entries_[index] = {.text_offset = static_cast<uint32_t>(texts_.size()),
                     .text_size = static_cast<uint32_t>(text.size()),
                     .bytes_offset = static_cast<uint32_t>(bytes_.size()),
                     .bytes_size = static_cast<uint32_t>(bytes.size()),
                     .source = source};
  texts_ += text;
  bytes_ += bytes;
  return {};
}

std::string_view Vocabulary::text(int32_t id) const {
  if (!has(id)) return {};
  const Entry& entry = entries_[static_cast<size_t>(id)];
  return std::string_view(texts_).substr(entry.text_offset, entry.text_size);
}

std::string_view Vocabulary::bytes(int32_t id) const {
  if (!has(id)) return {};
  const Entry& entry = entries_[static_cast<size_t>(id)];
  return std::string_view(bytes_).substr(entry.bytes_offset, entry.bytes_size);
}

std::optional<int32_t> Vocabulary::find(std::string_view text) const {
  if (slots_.empty()) return std::nullopt;
  const int32_t id = slots_[slot_of(text)];
  if (id < 0) return std::nullopt;
  return id;
}

size_t Vocabulary::slot_of(std::string_view text_to_find) const {
  const size_t mask = slots_.size() - 1;
  size_t slot = std::hash<std::string_view>{}(text_to_find)&mask;
  while (slots_[slot] >= 0 && text(slots_[slot]) != text_to_find) slot = (slot + 1) & mask;
  return slot;
}

void Vocabulary::grow() {
  slots_.assign(std::bit_ceil(4 * count_ + 16), -1);
  for (int32_t id = 0; id < size(); ++id)
    if (has(id)) slots_[slot_of(text(id))] = id;
}

}  // namespace pewter
