// The strings of the Jinja engine: UTF-8 bytes that remember which of them came from the client.
//
// A byte is authored when it stands literally in the template, and foreign otherwise: message
// content, tool text, keyword arguments, and everything computed (JSON, printed numbers, dates).
// Every operation that copies bytes copies their marks; where an operation rewrites bytes (case
// mapping, formatting) one foreign byte makes the whole result foreign. So a control token is
// believed only where the template's author wrote all of it.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "text/byte_range.h"

namespace pewter::jinja {

struct Text {
  std::string bytes;
  std::vector<ByteRange> foreign;  // sorted, disjoint, not touching
  bool markup = false;             // came through |safe: adding to it escapes the other side

  static Text authored(std::string_view bytes) { return {std::string(bytes), {}, false}; }
  static Text from_client(std::string_view bytes);

  size_t size() const { return bytes.size(); }
  bool empty() const { return bytes.empty(); }
  std::string_view view() const { return bytes; }
  bool all_authored() const { return foreign.empty(); }

  // Bytes [begin, end) with their marks.
  Text part(size_t begin, size_t end) const;
  // The same marks for rewritten bytes: foreign throughout if any byte of this was.
  Text rewritten(std::string new_bytes) const;
  // HTML escaping of the five special characters; the result is markup. Markup stays as it is.
  Text escaped() const;
};

// Puts texts together under a size limit. Appending past the limit appends nothing and marks the
// builder overflowed, so a caller may check once at the end.
class TextBuilder {
 public:
  explicit TextBuilder(int64_t limit_bytes) : limit_bytes_(limit_bytes) {}

  void append(const Text& text) { append_part(text, 0, text.size()); }
  void append_part(const Text& text, size_t begin, size_t end);
  void append_authored(std::string_view bytes);
  void append_foreign(std::string_view bytes);
  // count copies of text; the size is checked before anything is written.
  void append_repeated(const Text& text, int64_t count);

  bool overflowed() const { return overflowed_; }
  int64_t size() const { return static_cast<int64_t>(text_.size()); }
  Text take() { return std::move(text_); }

 private:
  bool reserve(size_t more);
  void mark_foreign(size_t begin, size_t end);

  Text text_;
  int64_t limit_bytes_;
  bool overflowed_ = false;
};

// Code points of valid UTF-8.
int64_t count_code_points(std::string_view text);
// Byte offset of each code point, and the size of the text at the end.
std::vector<size_t> code_point_offsets(std::string_view text);
// As std::string_view::find, in linear time whatever the two texts are.
size_t find_bytes(std::string_view text, std::string_view needle, size_t from = 0);

}  // namespace pewter::jinja
