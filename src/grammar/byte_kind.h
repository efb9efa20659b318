// Kinds of bytes, one bit each: what a state reads without moving and what the tokens below a node
// of the trie are made of are compared by kinds.
#pragma once

#include <cstdint>

namespace pewter::grammar {

constexpr uint8_t byte_kind(uint8_t byte) {
  const uint8_t lower = byte | 0x20;
  if (byte >= 0x80) return 1;
  if (byte < 0x20 || byte == 0x7F) return 2;
  if (byte == ' ') return 4;
  if (byte >= '0' && byte <= '9') return 8;
  if (lower >= 'a' && lower <= 'z') return 16;
  if (byte == '"') return 32;
  if (byte == '\\') return 64;
  return 128;
}

}  // namespace pewter::grammar
