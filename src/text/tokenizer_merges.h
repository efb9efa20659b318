// Byte-pair merging: a piece starts as one token per byte, and the pair of neighbours with the
// lowest rank (leftmost on ties) becomes one token until no pair has a rank.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace pewter {

struct TokenPair {
  int32_t left = 0;
  int32_t right = 0;
};

class MergeTable {
 public:
  static constexpr uint32_t kNoRank = UINT32_MAX;
  struct Merge {
    uint32_t rank = kNoRank;
    int32_t id = -1;  // of the merged token
  };

  void reserve(size_t merge_count);
  // A pair given twice keeps its last rank, as in the reference.
  void add(TokenPair pair, Merge merge);
  Merge find(TokenPair pair) const;

 private:
  struct Slot {
    uint64_t key = kFree;
    Merge merge;
  };
  static constexpr uint64_t kFree = UINT64_MAX;  // no pair: ids are not negative
  size_t slot_of(uint64_t key) const;

  std::vector<Slot> slots_;  // open addressing, a power of two
  size_t count_ = 0;
};

// The working memory of merging; kept between pieces so that a piece allocates nothing.
class PieceMerger {
 public:
  // Merges ids (one per byte of the piece) in place. O(n log n) for long pieces.
  void merge(const MergeTable& table, std::vector<int32_t>& ids);

 private:
  void merge_short(const MergeTable& table, std::vector<int32_t>& ids);
  void merge_long(const MergeTable& table, std::vector<int32_t>& ids);

  std::vector<MergeTable::Merge> merges_;  // of each symbol with the one after it
  std::vector<uint32_t> previous_, next_;
  std::vector<uint64_t> heap_;  // rank in the high half, position in the low: least is next
};

}  // namespace pewter
