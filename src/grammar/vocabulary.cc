#include "grammar/vocabulary.h"

#include <algorithm>
#include <functional>

#include "grammar/byte_kind.h"

namespace pewter::grammar {

Vocabulary::Vocabulary(std::vector<std::string> texts) : texts_(std::move(texts)) {
  for (size_t id = 0; id < texts_.size(); ++id) {
    if (texts_[id].size() > kLongestToken) texts_[id].clear();
    if (texts_[id].empty()) continue;
    tokens_.push_back(static_cast<int32_t>(id));
    longest_ = std::max(longest_, texts_[id].size());
  }
  std::ranges::sort(tokens_, [this](int32_t a, int32_t b) {
    const int order = text(a).compare(text(b));
    return order != 0 ? order < 0 : a < b;
  });

  std::vector<uint32_t> path = {0};  // nodes from the root to the last token's
  nodes_.emplace_back();
  std::string_view last;
  for (uint32_t i = 0; i < tokens_.size(); ++i) {
    const std::string_view bytes = text(tokens_[i]);
    size_t shared = 0;
    while (shared < last.size() && shared < bytes.size() && last[shared] == bytes[shared]) ++shared;
    for (; path.size() > shared + 1; path.pop_back())
      nodes_[path.back()].end = static_cast<uint32_t>(nodes_.size());
    for (size_t at = shared; at < bytes.size(); ++at) {
      path.push_back(static_cast<uint32_t>(nodes_.size()));
      nodes_.push_back({.first_token = i,
                        .byte = static_cast<uint8_t>(bytes[at]),
                        .depth = static_cast<uint8_t>(at + 1)});
    }
    last = bytes;
  }
  const auto end = static_cast<uint32_t>(nodes_.size());
  for (const uint32_t node : path) nodes_[node].end = end;
  // Backwards, every node comes before the one it hangs from.
  std::vector<uint32_t> parents(nodes_.size(), 0);
  for (uint32_t node = 0; node < nodes_.size(); ++node)
    for (uint32_t child = node + 1; child < nodes_[node].end; child = nodes_[child].end)
      parents[child] = node;
  for (uint32_t node = end - 1; node > 0; --node)
    nodes_[parents[node]].kinds_below |=
        static_cast<uint8_t>(nodes_[node].kinds_below | byte_kind(nodes_[node].byte));
  nodes_.push_back({.end = end, .first_token = static_cast<uint32_t>(tokens_.size())});

  by_length_ = tokens_;
  std::ranges::stable_sort(by_length_, std::greater<>(),
                           [this](int32_t id) { return text(id).size(); });
  count_longer_.assign(longest_ + 1, 0);
  for (const int32_t id : tokens_)
    for (size_t length = 0; length < text(id).size(); ++length) ++count_longer_[length];
}

std::span<const int32_t> Vocabulary::longer_than(size_t bytes) const {
  if (bytes >= longest_) return {};
  return std::span(by_length_).first(count_longer_[bytes]);
}

}  // namespace pewter::grammar
