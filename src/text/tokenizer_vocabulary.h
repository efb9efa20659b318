// The two-way table of tokens: id to text and bytes, text to id. Texts lie in one arena and the
// hash table holds ids only, so a vocabulary of a quarter million tokens is built in milliseconds.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace pewter {

inline constexpr int32_t kMaxTokenId = (1 << 22) - 1;  // 16 times the largest vocabulary in use

enum class TokenSource : uint8_t { kNone, kModel, kAdded };  // kNone: no token has this id

class Vocabulary {
 public:
  void reserve(size_t token_count, size_t text_bytes);

  // Adds a token. Errors (kCorruptData): an id outside [0, kMaxTokenId], an id or a text that is
  // taken. Ids may leave gaps.
  Status add(int64_t id, std::string_view text, TokenSource source);

  int32_t size() const { return static_cast<int32_t>(entries_.size()); }  // largest id + 1
  TokenSource source(int32_t id) const {
    return id >= 0 && id < size() ? entries_[static_cast<size_t>(id)].source : TokenSource::kNone;
  }
  bool has(int32_t id) const { return source(id) != TokenSource::kNone; }
  // The text as tokenizer.json spells it, in the byte-level alphabet. "" where there is no token.
  std::string_view text(int32_t id) const;
  // The bytes the text stands for. "" where there is no token.
  std::string_view bytes(int32_t id) const;
  std::optional<int32_t> find(std::string_view text) const;

 private:
  struct Entry {
    uint32_t text_offset = 0, text_size = 0;
    uint32_t bytes_offset = 0, bytes_size = 0;
    TokenSource source = TokenSource::kNone;
  };
  struct Slot {
    int32_t id = -1;    // -1 is free
    uint32_t hash = 0;  // compared first: saves a walk to a distant text for nearly every miss
  };
  static uint32_t hash_of(std::string_view text);
  // The text's slot, or the free slot where it would go.
  size_t slot_of(std::string_view text, uint32_t hash) const;
  void grow();

  std::vector<Entry> entries_;
  std::string texts_, bytes_;
  std::vector<Slot> slots_;  // open addressing, a power of two
  size_t count_ = 0;
};

}  // namespace pewter
