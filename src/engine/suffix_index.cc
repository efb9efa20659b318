#include "engine/suffix_index.h"

#include <algorithm>
#include <bit>

namespace pewter {

// A place is the position of a run's last token.
void SuffixIndex::begin(int64_t tokens, int64_t shortest) {
  CHECK(shortest >= 1 && shortest <= kLongestMatch, "shortest match ", shortest);
  shortest_ = shortest;
  indexed_ = 0;
  latest_.assign(std::bit_ceil(static_cast<size_t>(std::max<int64_t>(tokens, 1))), -1);
  previous_.resize(static_cast<size_t>(tokens));
}

size_t SuffixIndex::bucket(std::span<const int32_t> text, int64_t end) const {
  uint64_t hash = 0;
  for (int64_t i = end - shortest_ + 1; i <= end; ++i)
    hash = (hash + static_cast<uint32_t>(text[static_cast<size_t>(i)])) * 0x9E3779B97F4A7C15u;
  return static_cast<size_t>(hash >> 32) & (latest_.size() - 1);
}

// Every place but the last: a suffix does not match itself.
void SuffixIndex::extend(std::span<const int32_t> text) {
  const auto last = static_cast<int64_t>(text.size()) - 1;
  for (; indexed_ < last; ++indexed_) {
    if (indexed_ + 1 < shortest_) continue;
    int32_t& latest = latest_[bucket(text, indexed_)];
    previous_[static_cast<size_t>(indexed_)] = latest;
    latest = static_cast<int32_t>(indexed_);
  }
}

void SuffixIndex::draft(std::span<const int32_t> text, int64_t most, std::vector<int32_t>& drafts) {
  const auto size = static_cast<int64_t>(text.size());
  CHECK(size <= static_cast<int64_t>(previous_.size()), "text of ", size, " tokens in room for ",
        previous_.size());
  extend(text);
  if (size < shortest_) return;
  const auto at = [&](int64_t i) { return text[static_cast<size_t>(i)]; };
  int64_t best = -1, longest = 0, places = 0;
  for (int32_t place = latest_[bucket(text, size - 1)];
       place >= 0 && places < kMostPlaces && longest < kLongestMatch;
       place = previous_[static_cast<size_t>(place)], ++places) {
    int64_t length = 0;
    while (length < kLongestMatch && length <= place && at(place - length) == at(size - 1 - length))
      ++length;
    if (length > longest) {
      longest = length;
      best = place;
    }
  }
  if (longest < shortest_) return;  // another run in the same bucket
  const auto before = static_cast<int64_t>(drafts.size());
  for (int64_t i = 0; i < std::min(most, longest); ++i) {
    const int64_t from = best + 1 + i;  // past the text's end it repeats what it just guessed
    drafts.push_back(from < size ? at(from) : drafts[static_cast<size_t>(before + from - size)]);
  }
}

}  // namespace pewter
