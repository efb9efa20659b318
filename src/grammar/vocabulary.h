// Vocabulary: the tokens a grammar may be written with, as a trie of their bytes in one array.
// Immutable once built.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace pewter::grammar {

class Vocabulary {
 public:
  // texts[id]: the bytes of a token, or empty for one that no text is made of (control tokens, ids
  // without a token). Tokens longer than kLongestToken bytes are left out.
  explicit Vocabulary(std::vector<std::string> texts);
  static constexpr size_t kLongestToken = 255;

  int64_t size() const { return static_cast<int64_t>(texts_.size()); }
  int64_t mask_words() const { return (size() + 31) / 32; }
  std::string_view text(int32_t id) const {
    return id < 0 || id >= size() ? std::string_view{} : texts_[static_cast<size_t>(id)];
  }
  size_t longest() const { return longest_; }

  // The trie in preorder: a node's first child, if it has one, comes next, and its subtree ends
  // before node `end`. Node 0 is the root, which has no byte.
  struct Node {
    uint32_t end = 0;
    uint32_t first_token = 0;  // tokens of node i: [first_token, the next node's first_token)
    uint8_t byte = 0, depth = 0;
    uint8_t kinds_below = 0;  // of the bytes of all nodes below
  };
  std::span<const Node> nodes() const { return std::span(nodes_).first(nodes_.size() - 1); }
  std::span<const int32_t> tokens_at(uint32_t node) const { return tokens_between(node, node + 1); }
  // Of the node and all below it.
  std::span<const int32_t> tokens_below(uint32_t node) const {
    return tokens_between(node, nodes_[node].end);
  }

  // Tokens of more than so many bytes.
  std::span<const int32_t> longer_than(size_t bytes) const;

 private:
  std::span<const int32_t> tokens_between(uint32_t begin, uint32_t end) const {
    const uint32_t first = nodes_[begin].first_token;
    return std::span(tokens_).subspan(first, nodes_[end].first_token - first);
  }

  std::vector<std::string> texts_;
  std::vector<int32_t> tokens_;         // by their bytes
  std::vector<Node> nodes_;             // and one behind the last
  std::vector<int32_t> by_length_;      // the longest first
  std::vector<uint32_t> count_longer_;  // [longest + 1] than so many bytes
  size_t longest_ = 0;
};

}  // namespace pewter::grammar
