// Finds added tokens in text: at each position the longest one, from left to right, as the
// reference tokenizer does, with its options for blanks and word borders. Which tokens may be found
// depends on where their bytes come from: see AddedTokenFilter.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "text/byte_range.h"

namespace pewter {

struct AddedToken {
  int32_t id = 0;
  std::string content;
  bool special = false;      // not shown by a decode that skips special tokens
  bool normalized = false;   // looked for after the normaliser has run, not in the raw text
  bool lstrip = false;       // takes the blanks before it along
  bool rstrip = false;       // takes the blanks after it along
  bool single_word = false;  // only where no word character touches it
  bool operator==(const AddedToken&) const = default;
};

// Special tokens are not found where they touch a foreign byte. A token that is not allowed does
// not hide others: the next longest, or one further on, is found instead.
struct AddedTokenFilter {
  bool none = false;                     // finds nothing
  std::span<const ByteRange> foreign{};  // sorted, not overlapping, offsets into the text
};

// A stretch of text: plain (id < 0), or an added token.
struct AddedSpan {
  ByteRange range;
  int32_t id = -1;
};

class AddedTokenMatcher {
 public:
  AddedTokenMatcher() : nodes_(1) {}
  void add(const AddedToken& token);  // its content must not be empty
  bool empty() const { return tokens_.empty(); }

  // Appends the spans that text divides into. Plain spans are not empty.
  void split(std::string_view text, const AddedTokenFilter& filter,
             std::vector<AddedSpan>& out) const;

 private:
  struct Node {  // of a trie over bytes
    int32_t token = -1;
    uint32_t child = 0, sibling = 0;  // 0: none, since the root is nobody's child
    char byte = 0;
  };
  struct Match {
    const AddedToken* token = nullptr;
    size_t end = 0;
  };
  Match longest_at(std::string_view text, size_t begin, const AddedTokenFilter& filter) const;

  std::vector<AddedToken> tokens_;
  std::vector<Node> nodes_;
  std::array<bool, 256> starts_{};  // bytes that some token starts with
};

// True when [range.begin, range.end) meets one of the sorted ranges.
bool overlaps_any(ByteRange range, std::span<const ByteRange> sorted);

}  // namespace pewter
