#include "text/tokenizer_added.h"

#include <utf8proc.h>

#include <algorithm>

#include "base/utf8.h"

namespace pewter {
namespace {

// The White_Space property.
bool is_white_space(char32_t c) {
  return (c >= 0x09 && c <= 0x0D) || c == 0x20 || c == 0x85 || c == 0xA0 || c == 0x1680 ||
         (c >= 0x2000 && c <= 0x200A) || c == 0x2028 || c == 0x2029 || c == 0x202F || c == 0x205F ||
         c == 0x3000;
}

// \w of Unicode technical standard 18: letters, marks, letter numbers, decimal digits, connectors,
// the two joiners, and the enclosed letters that count as alphabetic.
bool is_word(char32_t c) {
  switch (utf8proc_category(static_cast<utf8proc_int32_t>(c))) {
    case UTF8PROC_CATEGORY_LU:
    case UTF8PROC_CATEGORY_LL:
    case UTF8PROC_CATEGORY_LT:
    case UTF8PROC_CATEGORY_LM:
    case UTF8PROC_CATEGORY_LO:
    case UTF8PROC_CATEGORY_MN:
    case UTF8PROC_CATEGORY_MC:
    case UTF8PROC_CATEGORY_ME:
    case UTF8PROC_CATEGORY_ND:
    case UTF8PROC_CATEGORY_NL:
    case UTF8PROC_CATEGORY_PC:
      return true;
    default:
      return c == 0x200C || c == 0x200D || (c >= 0x24B6 && c <= 0x24E9) ||
             (c >= 0x1F130 && c <= 0x1F149) || (c >= 0x1F150 && c <= 0x1F169) ||
             (c >= 0x1F170 && c <= 0x1F189);
  }
}

// The character that ends at text.end(). text is valid UTF-8 and not empty.
Utf8Step last_character(std::string_view text) {
  size_t begin = text.size() - 1;
  while (begin > 0 && (static_cast<unsigned char>(text[begin]) & 0xC0) == 0x80) --begin;
  return utf8_next(text.substr(begin));
}

bool touches_word(std::string_view before, std::string_view after) {
  return (!before.empty() && is_word(last_character(before).code_point)) ||
         (!after.empty() && is_word(utf8_next(after).code_point));
}

size_t blanks_at_end(std::string_view text) {
  const size_t size = text.size();
  while (!text.empty()) {
    const Utf8Step step = last_character(text);
    if (!is_white_space(step.code_point)) break;
    text.remove_suffix(static_cast<size_t>(step.length));
  }
  return size - text.size();
}

size_t blanks_at_start(std::string_view text) {
  const size_t size = text.size();
  while (!text.empty()) {
    const Utf8Step step = utf8_next(text);
    if (!is_white_space(step.code_point)) break;
    text.remove_prefix(static_cast<size_t>(step.length));
  }
  return size - text.size();
}

}  // namespace

bool overlaps_any(ByteRange range, std::span<const ByteRange> sorted) {
  const auto first = std::partition_point(sorted.begin(), sorted.end(),
                                          [&](const ByteRange& r) { return r.end <= range.begin; });
  return first != sorted.end() && first->begin < range.end && range.begin < range.end;
}

void AddedTokenMatcher::add(const AddedToken& token) {
  uint32_t node = 0;
  for (const char byte : token.content) {
    uint32_t child = nodes_[node].child;
    while (child != 0 && nodes_[child].byte != byte) child = nodes_[child].sibling;
    if (child == 0) {
      child = static_cast<uint32_t>(nodes_.size());
      nodes_.push_back({.sibling = nodes_[node].child, .byte = byte});
      nodes_[node].child = child;
    }
    node = child;
  }
  nodes_[node].token = static_cast<int32_t>(tokens_.size());
  tokens_.push_back(token);
  starts_[static_cast<unsigned char>(token.content[0])] = true;
}

AddedTokenMatcher::Match AddedTokenMatcher::longest_at(std::string_view text, size_t begin,
                                                       const AddedTokenFilter& filter) const {
  Match match;
  uint32_t node = 0;
  for (size_t at = begin; at < text.size(); ++at) {
    uint32_t child = nodes_[node].child;
    while (child != 0 && nodes_[child].byte != text[at]) child = nodes_[child].sibling;
    if (child == 0) break;
    node = child;
    if (nodes_[node].token < 0) continue;
    const AddedToken& token = tokens_[static_cast<size_t>(nodes_[node].token)];
    if (token.special && overlaps_any({.begin = begin, .end = at + 1}, filter.foreign)) continue;
    match = {.token = &token, .end = at + 1};
  }
  return match;
}

void AddedTokenMatcher::split(std::string_view text, const AddedTokenFilter& filter,
                              std::vector<AddedSpan>& out) const {
  size_t done = 0;  // text before this is in out
  for (size_t at = filter.none || tokens_.empty() ? text.size() : 0; at < text.size();) {
    if (!starts_[static_cast<unsigned char>(text[at])]) {
      ++at;
      continue;
    }
    const Match match = longest_at(text, at, filter);
    if (match.token == nullptr) {
      ++at;
      continue;
    }
    size_t begin = at, end = match.end;
    at = match.end;  // a token refused for its neighbours still uses up its text, as does the
                     // reference's search
    if (match.token->single_word && touches_word(text.substr(0, begin), text.substr(end))) continue;
    if (match.token->lstrip) begin = std::max(done, begin - blanks_at_end(text.substr(0, begin)));
    if (match.token->rstrip) end += blanks_at_start(text.substr(end));
    if (done < begin) out.push_back({.range = {.begin = done, .end = begin}});
    out.push_back({.range = {.begin = begin, .end = end}, .id = match.token->id});
    done = end;
  }
  if (done < text.size()) out.push_back({.range = {.begin = done, .end = text.size()}});
}

}  // namespace pewter
