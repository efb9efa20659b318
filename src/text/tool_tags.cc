#include "text/tool_tags.h"

#include <algorithm>
#include <array>
#include <utility>

namespace pewter {
namespace {

constexpr size_t kMostBlanks = 4096, kLongestName = 256;

constexpr std::array<std::pair<std::string_view, TagKind>, 6> kTags = {
    {{"<tool_call>", TagKind::kCall},
     {"</tool_call>", TagKind::kCallEnd},
     {"<function=", TagKind::kFunction},
     {"</function>", TagKind::kFunctionEnd},
     {"<parameter=", TagKind::kParameter},
     {"</parameter>", TagKind::kParameterEnd}}};

// A name runs to '>' on the same line.
Tag with_name(std::string_view text, Tag tag, Ending ending) {
  const size_t end = text.find_first_of("<>\n", tag.end);
  const size_t length = std::min(end, text.size()) - tag.end;
  if (end == std::string_view::npos && length <= kLongestName && ending != Ending::kStop)
    return {.kind = TagKind::kUnsure, .begin = tag.begin};
  if (end == std::string_view::npos || length > kLongestName || text[end] != '>')
    return {.kind = TagKind::kOther, .begin = tag.begin};
  constexpr std::string_view kAround = " \t\r\"";
  std::string_view name = text.substr(tag.end, length);
  name.remove_prefix(std::min(name.find_first_not_of(kAround), name.size()));
  name = name.substr(0, name.find_last_not_of(kAround) + 1);
  tag.end = end + 1;
  tag.name = name;
  if (name.empty()) tag.kind = TagKind::kOther;
  return tag;
}

}  // namespace

Tag tag_at(std::string_view text, size_t at, Ending ending) {
  const std::string_view rest = text.substr(at);
  if (rest.empty())
    return {.kind = ending == Ending::kStop ? TagKind::kEnd : TagKind::kUnsure, .begin = at};
  for (const auto& [spelling, kind] : kTags) {
    if (rest.starts_with(spelling)) {
      const Tag tag{.kind = kind, .begin = at, .end = at + spelling.size()};
      return spelling.back() == '=' ? with_name(text, tag, ending) : tag;
    }
    if (spelling.starts_with(rest) && ending != Ending::kStop)
      return {.kind = TagKind::kUnsure, .begin = at};
  }
  return {.kind = TagKind::kOther, .begin = at};
}

Tag tag_behind_blanks(std::string_view text, size_t at, Ending ending) {
  const size_t next = std::min(text.find_first_not_of(kBlankBytes, at), text.size());
  if (next - at > kMostBlanks) return {.kind = TagKind::kOther, .begin = at};
  return tag_at(text, next, ending);
}

}  // namespace pewter
