#include "text/jinja/text_ops.h"

#include <algorithm>

#include "base/utf8.h"
#include "text/jinja/unicode.h"

namespace pewter::jinja {
namespace {

// The start of the character that ends at `end`.
size_t character_before(std::string_view text, size_t end) {
  size_t at = end - 1;
  while (at > 0 && (static_cast<unsigned char>(text[at]) & 0xC0) == 0x80) --at;
  return at;
}

char32_t code_point_at(std::string_view text, size_t at) {
  return utf8_next(text.substr(at)).code_point;
}

size_t next_character(std::string_view text, size_t at) {
  return at + std::max<size_t>(1, static_cast<size_t>(utf8_next(text.substr(at)).length));
}

Text marked(const Text& like, Text text) {
  text.markup = like.markup;
  return text;
}

}  // namespace

Text strip(const Text& text, Side side, const Text* characters) {
  const std::string_view bytes = text.view();
  const auto strips = [&](size_t begin, size_t end) {
    if (characters == nullptr) return is_space(code_point_at(bytes, begin));
    // A whole character of valid UTF-8 can only be found where it is one.
    return characters->view().find(bytes.substr(begin, end - begin)) != std::string_view::npos;
  };
  size_t begin = 0, end = bytes.size();
  while (side != Side::kRight && begin < end) {
    const size_t next = next_character(bytes, begin);
    if (!strips(begin, next)) break;
    begin = next;
  }
  while (side != Side::kLeft && begin < end) {
    const size_t last = character_before(bytes, end);
    if (!strips(last, end)) break;
    end = last;
  }
  return text.part(begin, end);
}

Result<std::vector<Text>> split(Budget& budget, const Text& text, std::string_view separator,
                                int64_t most, bool from_right) {
  // The search from the right is the plain one, which may compare all of the separator everywhere.
  TRY(budget.spend_scan(text.size() * (from_right ? separator.size() : 1)));
  const std::string_view bytes = text.view();
  std::vector<Text> parts;
  if (from_right) {
    size_t end = bytes.size();
    while (most != 0) {
      const size_t at = end < separator.size() ? std::string_view::npos
                                               : bytes.rfind(separator, end - separator.size());
      if (at == std::string_view::npos) break;
      TRY(budget.spend_memory(sizeof(Text)));
      parts.push_back(text.part(at + separator.size(), end));
      end = at;
      --most;
    }
    parts.push_back(text.part(0, end));
    std::reverse(parts.begin(), parts.end());
    return parts;
  }
  size_t begin = 0;
  while (most != 0) {
    const size_t at = find_bytes(bytes, separator, begin);
    if (at == std::string_view::npos) break;
    TRY(budget.spend_memory(sizeof(Text)));
    parts.push_back(text.part(begin, at));
    begin = at + separator.size();
    --most;
  }
  parts.push_back(text.part(begin, bytes.size()));
  return parts;
}

Result<std::vector<Text>> split_words(Budget& budget, const Text& text, int64_t most,
                                      bool from_right) {
  TRY(budget.spend_scan(text.size() * 4));
  const Text trimmed = strip(text, Side::kBoth, nullptr);
  const std::string_view bytes = trimmed.view();
  // Words as byte ranges, then the ones beyond the bound joined again with what lies between them.
  std::vector<ByteRange> words;
  for (size_t at = 0; at < bytes.size();) {
    const size_t begin = at;
    while (at < bytes.size() && !is_space(code_point_at(bytes, at))) at = next_character(bytes, at);
    TRY(budget.spend_memory(sizeof(Text) + sizeof(ByteRange)));
    words.push_back({begin, at});
    while (at < bytes.size() && is_space(code_point_at(bytes, at))) at = next_character(bytes, at);
  }
  std::vector<Text> parts;
  const auto count = static_cast<int64_t>(words.size());
  if (most < 0 || count <= most) {
    for (const ByteRange& word : words) parts.push_back(trimmed.part(word.begin, word.end));
    return parts;
  }
  // What is left over keeps its outer whitespace on the far side, as in Python.
  const auto kept = static_cast<size_t>(most);
  if (from_right) {
    const size_t rest = words.size() - kept;
    const Text whole = strip(text, Side::kRight, nullptr);
    const size_t shift = whole.size() - trimmed.size();
    parts.push_back(whole.part(0, words[rest - 1].end + shift));
    for (size_t i = rest; i < words.size(); ++i)
      parts.push_back(trimmed.part(words[i].begin, words[i].end));
  } else {
    for (size_t i = 0; i < kept; ++i) parts.push_back(trimmed.part(words[i].begin, words[i].end));
    const Text whole = strip(text, Side::kLeft, nullptr);
    parts.push_back(whole.part(words[kept].begin, whole.size()));
  }
  return parts;
}

Result<std::vector<Text>> split_lines(Budget& budget, const Text& text, bool keep_ends) {
  TRY(budget.spend_scan(text.size() * 4));
  const std::string_view bytes = text.view();
  std::vector<Text> lines;
  size_t begin = 0;
  for (size_t at = 0; at < bytes.size();) {
    const bool ends = is_line_break(code_point_at(bytes, at));
    size_t next = next_character(bytes, at);
    if (ends && bytes[at] == '\r' && next < bytes.size() && bytes[next] == '\n') ++next;
    if (ends) {
      TRY(budget.spend_memory(sizeof(Text)));
      lines.push_back(text.part(begin, keep_ends ? next : at));
      begin = next;
    }
    at = next;
  }
  if (begin < bytes.size()) lines.push_back(text.part(begin, bytes.size()));
  return lines;
}

Result<Text> replace(Budget& budget, const Text& text, const Text& old_text, const Text& new_text,
                     int64_t most) {
  TRY(budget.spend_scan(text.size()));
  TextBuilder out(budget.limits().max_output_bytes);
  const std::string_view bytes = text.view();
  size_t at = 0;
  if (old_text.empty()) {
    for (; most != 0 && !out.overflowed(); --most) {
      out.append(new_text);
      if (at >= bytes.size()) break;
      const size_t next = next_character(bytes, at);
      out.append_part(text, at, next);
      at = next;
    }
  } else {
    for (; most != 0 && !out.overflowed(); --most) {
      const size_t found = find_bytes(bytes, old_text.view(), at);
      if (found == std::string_view::npos) break;
      out.append_part(text, at, found);
      out.append(new_text);
      at = found + old_text.size();
    }
  }
  out.append_part(text, at, bytes.size());
  if (out.overflowed()) return budget.too_long();
  return marked(text, out.take());
}

Result<Text> pad(Budget& budget, const Text& text, int64_t width, const Text& fill, Align align) {
  const int64_t length = count_code_points(text.view());
  if (width <= length) return text;
  const int64_t missing = width - length;
  // Python's str.center puts the odd one out on the left when the width is odd.
  const int64_t left = align == Align::kLeft    ? 0
                       : align == Align::kRight ? missing
                                                : missing / 2 + (missing & width & 1);
  TextBuilder out(budget.limits().max_output_bytes);
  out.append_repeated(fill, left);
  out.append(text);
  out.append_repeated(fill, missing - left);
  if (out.overflowed()) return budget.too_long();
  return marked(text, out.take());
}

}  // namespace pewter::jinja
