#include "text/nfc.h"

#include <utf8proc.h>

#include <algorithm>
#include <iterator>
#include <span>
#include <vector>

#include "base/utf8.h"

namespace pewter {
namespace {

struct Range {
  char32_t first, last;
};

// Measured against the reference for every character: marks with a combining class, and U+11930,
// the second half of a composition, that it treats as plain characters.
constexpr Range kUnknownToReference[] = {
    {0x7FD, 0x7FD},     {0x898, 0x89F},     {0x8CA, 0x8D3},     {0x9FE, 0x9FE},
    {0xC3C, 0xC3C},     {0xD3B, 0xD3C},     {0xEBA, 0xEBA},     {0x1715, 0x1715},
    {0x1ABF, 0x1ACE},   {0x1DF6, 0x1DFA},   {0xA82C, 0xA82C},   {0x10D24, 0x10D27},
    {0x10EAB, 0x10EAC}, {0x10EFD, 0x10EFF}, {0x10F46, 0x10F50}, {0x10F82, 0x10F85},
    {0x11070, 0x11070}, {0x1133B, 0x1133B}, {0x1145E, 0x1145E}, {0x11839, 0x1183A},
    {0x11930, 0x11930}, {0x1193D, 0x1193E}, {0x11943, 0x11943}, {0x119E0, 0x119E0},
    {0x11A34, 0x11A34}, {0x11A47, 0x11A47}, {0x11A99, 0x11A99}, {0x11D42, 0x11D42},
    {0x11D44, 0x11D45}, {0x11D97, 0x11D97}, {0x11F41, 0x11F42}, {0x16FF0, 0x16FF1},
    {0x1E08F, 0x1E08F}, {0x1E130, 0x1E136}, {0x1E2AE, 0x1E2AE}, {0x1E2EC, 0x1E2EF},
    {0x1E4EC, 0x1E4EF}};

}  // namespace

bool is_mark_unknown_to_reference(char32_t c) {
  const auto* range =
      std::lower_bound(std::begin(kUnknownToReference), std::end(kUnknownToReference), c,
                       [](const Range& r, char32_t x) { return r.last < x; });
  return range != std::end(kUnknownToReference) && c >= range->first;
}

namespace {

// Characters that NFC leaves alone and that cannot join the character before them: no decomposition
// to undo, combining class 0, never the second half of a composition. An approximation from below;
// nfc_test holds it against the full algorithm. U+11A7 must be here: it comes just before the
// Hangul trailing consonants, and utf8proc's composition takes it for one and drops it.
bool is_inert(char32_t c) {
  if (c < 0x300) return true;
  if (c < 0x2010)
    return (c >= 0x400 && c <= 0x482) || (c >= 0x48A && c <= 0x52F) || c == 0x11A7 ||
           is_mark_unknown_to_reference(c);
  if (c < 0x3400)
    return c <= 0x2027 || (c >= 0x3001 && c <= 0x3029) || (c >= 0x3041 && c <= 0x3096) ||
           (c >= 0x30A1 && c <= 0x30FA);
  return c <= 0x4DBF || (c >= 0x4E00 && c <= 0x9FFF) || (c >= 0xAC00 && c <= 0xD7A3) ||
         (c >= 0xFF01 && c <= 0xFF5E) || (c >= 0x1F300 && c <= 0x1FAFF) ||
         is_mark_unknown_to_reference(c);
}

uint32_t combining_class(int32_t c) {
  return static_cast<uint32_t>(utf8proc_get_property(c)->combining_class);
}

// A stable sort by combining class. One mark needs none; the keys make a plain sort stable: class,
// place (texts have less than 2^31 characters), character.
void order_marks(std::span<int32_t> marks) {
  if (marks.size() < 2) return;
  std::vector<uint64_t> keys(marks.size());
  for (size_t i = 0; i < marks.size(); ++i)
    keys[i] = (uint64_t{combining_class(marks[i])} << 52) | (uint64_t{i} << 21) |
              static_cast<uint32_t>(marks[i]);
  std::sort(keys.begin(), keys.end());
  for (size_t i = 0; i < marks.size(); ++i) marks[i] = static_cast<int32_t>(keys[i] & 0x1FFFFF);
}

// Full canonical decomposition with marks in canonical order. utf8proc's own ordering is an
// insertion sort, quadratic in the length of a run of marks; ours is not.
Status decompose(std::string_view text, std::vector<int32_t>& out) {
  out.clear();
  while (!text.empty()) {
    const Utf8Step step = utf8_next(text);
    text.remove_prefix(static_cast<size_t>(step.length));
    int32_t buffer[32];  // the longest canonical decomposition has four characters
    int last_boundclass = UTF8PROC_BOUNDCLASS_START;
    const auto count = utf8proc_decompose_char(static_cast<int32_t>(step.code_point), buffer, 32,
                                               UTF8PROC_DECOMPOSE, &last_boundclass);
    if (count < 0 || count > 32)
      return Error{ErrorCode::kInternal,
                   str_cat("NFC: cannot decompose U+", static_cast<uint32_t>(step.code_point))};
    out.insert(out.end(), buffer, buffer + count);
  }
  for (size_t begin = 0; begin < out.size();) {
    if (combining_class(out[begin]) == 0) {
      ++begin;
      continue;
    }
    size_t end = begin + 1;
    while (end < out.size() && combining_class(out[end]) != 0) ++end;
    order_marks({out.data() + begin, end - begin});
    begin = end;
  }
  return {};
}

Status append_normalized(std::string& out, std::string_view text, std::vector<int32_t>& scratch) {
  TRY(decompose(text, scratch));
  const auto length =
      utf8proc_normalize_utf32(scratch.data(), static_cast<utf8proc_ssize_t>(scratch.size()),
                               static_cast<utf8proc_option_t>(UTF8PROC_COMPOSE | UTF8PROC_STABLE));
  if (length < 0) return Error{ErrorCode::kInternal, str_cat("NFC: ", utf8proc_errmsg(length))};
  for (utf8proc_ssize_t i = 0; i < length; ++i)
    append_utf8(out, static_cast<char32_t>(scratch[static_cast<size_t>(i)]));
  return {};
}

}  // namespace

bool is_trivially_nfc(std::string_view text) {
  for (size_t at = 0; at < text.size();) {
    if (static_cast<unsigned char>(text[at]) < 0x80) {
      ++at;
      continue;
    }
    const Utf8Step step = utf8_next(text.substr(at));
    if (!is_inert(step.code_point)) return false;
    at += static_cast<size_t>(step.length);
  }
  return true;
}

// Inert stretches are copied. A stretch of other characters is normalised together with the one
// character before it, which its first marks may join; the inert character after it cannot join it.
Result<std::string> to_nfc(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  std::vector<int32_t> scratch;
  size_t copied = 0, previous = 0;  // text before copied is in out; previous starts the last char
  for (size_t at = 0; at < text.size();) {
    Utf8Step step = utf8_next(text.substr(at));
    if (is_inert(step.code_point)) {
      previous = at;
      at += static_cast<size_t>(step.length);
      continue;
    }
    // utf8proc would move marks past one that the reference takes for a letter.
    const bool alone =
        at == copied || is_mark_unknown_to_reference(utf8_next(text.substr(previous)).code_point);
    const size_t begin = alone ? at : previous;
    out += text.substr(copied, begin - copied);
    while (at < text.size()) {
      step = utf8_next(text.substr(at));
      if (is_inert(step.code_point)) break;
      at += static_cast<size_t>(step.length);
    }
    TRY(append_normalized(out, text.substr(begin, at - begin), scratch));
    copied = at;
  }
  out += text.substr(copied);
  return out;
}

}  // namespace pewter
