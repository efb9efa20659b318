// SuffixIndex: the longest suffix of a sequence that it has said before, and what came after it
// then. No weights and no model pass; good where text is copied: code, quotations, agents.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/check.h"

namespace pewter {

// Where each short run of tokens of one growing text ended before. Finding and extending take
// constant time a token, the longest chain aside.
class SuffixIndex {
 public:
  // Matches longer than this are not told apart.
  static constexpr int64_t kLongestMatch = 64;
  // Earlier places that are looked at, the latest first.
  static constexpr int64_t kMostPlaces = 128;

  // An empty text that may grow to `tokens`; matches are at least `shortest` long.
  void begin(int64_t tokens, int64_t shortest);

  // `text` is the same one as before, with more behind it. Appends at most `most` guesses of what
  // follows it, and no more than the match is long; nothing without a match.
  void draft(std::span<const int32_t> text, int64_t most, std::vector<int32_t>& drafts);

 private:
  size_t bucket(std::span<const int32_t> text, int64_t end) const;
  void extend(std::span<const int32_t> text);

  int64_t shortest_ = 1, indexed_ = 0;  // places [0, indexed_) are in the chains
  std::vector<int32_t> latest_;         // of each bucket, the last place; -1: none
  std::vector<int32_t> previous_;       // of each place, the one before it in its bucket
};

}  // namespace pewter
