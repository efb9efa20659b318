#include "text/nfc.h"

#include <utf8proc.h>

#include <algorithm>
#include <vector>

#include "base/utf8.h"

namespace pewter {
namespace {

// Characters that NFC leaves alone and that cannot join the character before them: no decomposition
// to undo, combining class 0, never the second half of a composition. An approximation from below;
// nfc_test holds it against the full algorithm.
bool is_inert(char32_t c) {
  if (c < 0x300) return true;
  if (c < 0x2010) return (c >= 0x400 && c <= 0x482) || (c >= 0x48A && c <= 0x52F);
  if (c < 0x3400)
    return c <= 0x2027 || (c >= 0x3001 && c <= 0x3029) || (c >= 0x3041 && c <= 0x3096) ||
           (c >= 0x30A1 && c <= 0x30FA);
  return c <= 0x4DBF || (c >= 0x4E00 && c <= 0x9FFF) || (c >= 0xAC00 && c <= 0xD7A3) ||
         (c >= 0xFF01 && c <= 0xFF5E) || (c >= 0x1F300 && c <= 0x1FAFF);
}

int combining_class(int32_t c) { return utf8proc_get_property(c)->combining_class; }

// Full canonical decomposition with marks in canonical order. utf8proc's own ordering is an
// insertion sort, quadratic in the length of a run of marks; a stable sort of each run is not.
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
    std::stable_sort(out.begin() + static_cast<ptrdiff_t>(begin),
                     out.begin() + static_cast<ptrdiff_t>(end),
                     [](int32_t a, int32_t b) { return combining_class(a) < combining_class(b); });
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
  while (!text.empty()) {
    const Utf8Step step = utf8_next(text);
    if (!is_inert(step.code_point)) return false;
    text.remove_prefix(static_cast<size_t>(step.length));
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
    const size_t begin = at == copied ? at : previous;
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
