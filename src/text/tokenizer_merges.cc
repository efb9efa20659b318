#include "text/tokenizer_merges.h"

#include <algorithm>
#include <bit>
#include <cstddef>
#include <functional>

#include "base/rng.h"

namespace pewter {
namespace {

uint64_t key_of(TokenPair pair) {
  return (uint64_t{static_cast<uint32_t>(pair.left)} << 32) | static_cast<uint32_t>(pair.right);
}

// Up to here scanning all pairs for the least beats keeping a heap (measured on English text, where
// nearly every piece is shorter).
constexpr size_t kShortPiece = 32;
constexpr uint32_t kNone = UINT32_MAX;

}  // namespace

void MergeTable::reserve(size_t merge_count) {
  std::vector<Slot> old = std::move(slots_);
  slots_.assign(std::bit_ceil(2 * std::max(merge_count, count_) + 16), Slot{});
  for (const Slot& slot : old)
    if (slot.key != kFree) slots_[slot_of(slot.key)] = slot;
}

void MergeTable::add(TokenPair pair, Merge merge) {
  if (2 * (count_ + 1) > slots_.size()) reserve(2 * count_);
  Slot& slot = slots_[slot_of(key_of(pair))];
  if (slot.key == kFree) ++count_;
  slot = {.key = key_of(pair), .merge = merge};
}

MergeTable::Merge MergeTable::find(TokenPair pair) const {
  return slots_.empty() ? Merge{} : slots_[slot_of(key_of(pair))].merge;
}

size_t MergeTable::slot_of(uint64_t key) const {
  const size_t mask = slots_.size() - 1;
  size_t slot = mix64(key) & mask;
  while (slots_[slot].key != key && slots_[slot].key != kFree) slot = (slot + 1) & mask;
  return slot;
}

void PieceMerger::merge(const MergeTable& table, std::vector<int32_t>& ids) {
  if (ids.size() < 2) return;
  if (ids.size() <= kShortPiece)
    merge_short(table, ids);
  else
    merge_long(table, ids);
}

void PieceMerger::merge_short(const MergeTable& table, std::vector<int32_t>& ids) {
  merges_.clear();
  for (size_t i = 0; i + 1 < ids.size(); ++i)
    merges_.push_back(table.find({.left = ids[i], .right = ids[i + 1]}));
  while (!merges_.empty()) {
    size_t best = 0;
    for (size_t i = 1; i < merges_.size(); ++i)
      if (merges_[i].rank < merges_[best].rank) best = i;
    if (merges_[best].rank == MergeTable::kNoRank) break;
    const auto at = static_cast<ptrdiff_t>(best);
    ids[best] = merges_[best].id;
    ids.erase(ids.begin() + at + 1);
    merges_.erase(merges_.begin() + at);
    if (best > 0) merges_[best - 1] = table.find({.left = ids[best - 1], .right = ids[best]});
    if (best < merges_.size())
      merges_[best] = table.find({.left = ids[best], .right = ids[best + 1]});
  }
}

// Symbols form a linked list, candidate pairs a heap. A heap entry is out of date when its symbol
// is gone or pairs differently by now; it is told by the rank, which belongs to one pair only: the
// text of "symbol and its neighbour" only ever grows, so an old rank cannot come back.
void PieceMerger::merge_long(const MergeTable& table, std::vector<int32_t>& ids) {
  const auto count = static_cast<uint32_t>(ids.size());
  merges_.assign(count, MergeTable::Merge{});
  previous_.resize(count);
  next_.resize(count);
  heap_.clear();
  for (uint32_t i = 0; i < count; ++i) {
    previous_[i] = i == 0 ? kNone : i - 1;
    next_[i] = i + 1 == count ? kNone : i + 1;
    if (i + 1 == count) break;
    merges_[i] = table.find({.left = ids[i], .right = ids[i + 1]});
    if (merges_[i].rank != MergeTable::kNoRank)
      heap_.push_back((uint64_t{merges_[i].rank} << 32) | i);
  }
  std::make_heap(heap_.begin(), heap_.end(), std::greater<>());

  const auto pair_again = [&](uint32_t i) {
    merges_[i] = next_[i] == kNone ? MergeTable::Merge{}
                                   : table.find({.left = ids[i], .right = ids[next_[i]]});
    if (merges_[i].rank == MergeTable::kNoRank) return;
    heap_.push_back((uint64_t{merges_[i].rank} << 32) | i);
    std::push_heap(heap_.begin(), heap_.end(), std::greater<>());
  };
  while (!heap_.empty()) {
    std::pop_heap(heap_.begin(), heap_.end(), std::greater<>());
    const auto rank = static_cast<uint32_t>(heap_.back() >> 32);
    const auto i = static_cast<uint32_t>(heap_.back());
    heap_.pop_back();
    if (merges_[i].rank != rank) continue;
    const uint32_t right = next_[i];
    ids[i] = merges_[i].id;
    merges_[right] = {};
    next_[i] = next_[right];
    if (next_[i] != kNone) previous_[next_[i]] = i;
    pair_again(i);
    if (previous_[i] != kNone) pair_again(previous_[i]);
  }

  size_t kept = 0;
  for (uint32_t i = 0; i != kNone; i = next_[i]) ids[kept++] = ids[i];
  ids.resize(kept);
}

}  // namespace pewter
