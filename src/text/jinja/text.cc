#include "text/jinja/text.h"

#include <algorithm>
#include <cstring>

#include "base/check.h"

namespace pewter::jinja {

Text Text::from_client(std::string_view bytes) {
  Text text{std::string(bytes), {}, false};
  if (!bytes.empty()) text.foreign.push_back({0, bytes.size()});
  return text;
}

Text Text::part(size_t begin, size_t end) const {
  TextBuilder builder(INT64_MAX);
  builder.append_part(*this, begin, end);
  Text out = builder.take();
  out.markup = markup;
  return out;
}

Text Text::rewritten(std::string new_bytes) const {
  Text out = all_authored() ? authored(new_bytes) : from_client(new_bytes);
  out.markup = markup;
  return out;
}

Text Text::escaped() const {
  if (markup) return *this;
  TextBuilder builder(INT64_MAX);  // at most five times as long: the caller checks sizes
  size_t done = 0;
  for (size_t i = 0; i < bytes.size(); ++i) {
    std::string_view entity;
    switch (bytes[i]) {
      case '&':
        entity = "&amp;";
        break;
      case '<':
        entity = "&lt;";
        break;
      case '>':
        entity = "&gt;";
        break;
      case '\'':
        entity = "&#39;";
        break;
      case '"':
        entity = "&#34;";
        break;
      default:
        continue;
    }
    builder.append_part(*this, done, i);
    if (part(i, i + 1).all_authored())
      builder.append_authored(entity);
    else
      builder.append_foreign(entity);
    done = i + 1;
  }
  builder.append_part(*this, done, bytes.size());
  Text out = builder.take();
  out.markup = true;
  return out;
}

bool TextBuilder::reserve(size_t more) {
  if (overflowed_ || more > static_cast<uint64_t>(limit_bytes_) ||
      text_.size() > static_cast<uint64_t>(limit_bytes_) - more)
    overflowed_ = true;
  return !overflowed_;
}

void TextBuilder::mark_foreign(size_t begin, size_t end) {
  if (begin == end) return;
  if (!text_.foreign.empty() && text_.foreign.back().end == begin)
    text_.foreign.back().end = end;
  else
    text_.foreign.push_back({begin, end});
}

void TextBuilder::append_part(const Text& text, size_t begin, size_t end) {
  DCHECK(begin <= end && end <= text.size());
  if (!reserve(end - begin)) return;
  const size_t base = text_.size();
  text_.bytes.append(text.bytes, begin, end - begin);
  // The first mark that ends after begin, by bisection: long texts are cut into many parts.
  size_t low = 0, high = text.foreign.size();
  while (low < high) {
    const size_t middle = (low + high) / 2;
    if (text.foreign[middle].end <= begin)
      low = middle + 1;
    else
      high = middle;
  }
  for (; low < text.foreign.size() && text.foreign[low].begin < end; ++low) {
    const size_t from = std::max(text.foreign[low].begin, begin);
    const size_t to = std::min(text.foreign[low].end, end);
    mark_foreign(base + from - begin, base + to - begin);
  }
}

void TextBuilder::append_authored(std::string_view bytes) {
  if (reserve(bytes.size())) text_.bytes += bytes;
}

void TextBuilder::append_foreign(std::string_view bytes) {
  if (!reserve(bytes.size())) return;
  const size_t base = text_.size();
  text_.bytes += bytes;
  mark_foreign(base, text_.size());
}

void TextBuilder::append_repeated(const Text& text, int64_t count) {
  if (count <= 0 || text.empty()) return;
  if (count > limit_bytes_ / static_cast<int64_t>(text.size())) {
    overflowed_ = true;
    return;
  }
  if (!reserve(static_cast<size_t>(count) * text.size())) return;
  for (int64_t i = 0; i < count; ++i) append(text);
}

int64_t count_code_points(std::string_view text) {
  int64_t count = 0;
  for (const char c : text) count += (static_cast<unsigned char>(c) & 0xC0) != 0x80;
  return count;
}

std::vector<size_t> code_point_offsets(std::string_view text) {
  std::vector<size_t> offsets;
  offsets.reserve(text.size() + 1);
  for (size_t i = 0; i < text.size(); ++i)
    if ((static_cast<unsigned char>(text[i]) & 0xC0) != 0x80) offsets.push_back(i);
  offsets.push_back(text.size());
  return offsets;
}

size_t find_bytes(std::string_view text, std::string_view needle, size_t from) {
  if (from > text.size()) return std::string_view::npos;
  if (needle.empty()) return from;
  // std::string_view::find is quadratic on texts such as aaa…ab; the C library's memmem is not.
  const void* found = memmem(text.data() + from, text.size() - from, needle.data(), needle.size());
  if (found == nullptr) return std::string_view::npos;
  return static_cast<size_t>(static_cast<const char*>(found) - text.data());
}

}  // namespace pewter::jinja
