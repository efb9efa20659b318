#include "text/tokenizer_vocabulary.h"

#include <bit>
#include <functional>

#include "text/byte_level.h"

namespace pewter {

void Vocabulary::reserve(size_t token_count, size_t text_bytes) {
  entries_.reserve(token_count);
  texts_.reserve(text_bytes);
  bytes_.reserve(text_bytes);
  slots_.assign(std::bit_ceil(2 * token_count + 16), Slot{});
}

Status Vocabulary::add(int64_t id, std::string_view text, TokenSource source) {
  if (id < 0 || id > kMaxTokenId)
    return Error{ErrorCode::kCorruptData, str_cat("token id ", id, " is out of range")};
  if (has(static_cast<int32_t>(id)))
    return Error{ErrorCode::kCorruptData, str_cat("token id ", id, " is given twice")};
  if (2 * (count_ + 1) > slots_.size()) grow();
  const uint32_t hash = hash_of(text);
  const size_t slot = slot_of(text, hash);
  if (slots_[slot].id >= 0)
    return Error{ErrorCode::kCorruptData, str_cat("token \"", text, "\" is given twice")};
  const std::string bytes = byte_level_bytes(text);
  if (texts_.size() + text.size() > UINT32_MAX)
    return Error{ErrorCode::kCorruptData, "more than 4 GiB of token text"};

  slots_[slot] = {.id = static_cast<int32_t>(id), .hash = hash};
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
  const int32_t id = slots_[slot_of(text, hash_of(text))].id;
  if (id < 0) return std::nullopt;
  return id;
}

uint32_t Vocabulary::hash_of(std::string_view text) {
  return static_cast<uint32_t>(std::hash<std::string_view>{}(text));
}

size_t Vocabulary::slot_of(std::string_view text_to_find, uint32_t hash) const {
  const size_t mask = slots_.size() - 1;
  size_t slot = hash & mask;
  while (slots_[slot].id >= 0 &&
         (slots_[slot].hash != hash || text(slots_[slot].id) != text_to_find))
    slot = (slot + 1) & mask;
  return slot;
}

void Vocabulary::grow() {
  const std::vector<Slot> old = std::move(slots_);
  slots_.assign(std::bit_ceil(4 * count_ + 16), Slot{});
  for (const Slot& slot : old)
    if (slot.id >= 0) slots_[slot_of(text(slot.id), slot.hash)] = slot;
}

}  // namespace pewter
