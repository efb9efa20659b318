// The tags of tool calls, found in a text that may still grow. No answer is given before it is
// certain: what a longer text could change is kUnsure, so that how a text is cut makes no
// difference.
#pragma once

#include <cstddef>

#include <cstdint>
#include <string_view>
#include "base/blanks.h"

namespace pewter {

// Whether a text ends where it does, and why. An end by length decides nothing: the model was
// interrupted.
enum class Ending : uint8_t { kNone, kStop, kLength };

enum class TagKind : uint8_t {
  kUnsure,       // more text is needed
  kEnd,          // nothing but the end
  kOther,        // no tag
  kCall,         // <tool_call>
  kCallEnd,      // </tool_call>
  kFunction,     // <function=NAME>
  kFunctionEnd,  // </function>
  kParameter,    // <parameter=NAME>
  kParameterEnd  // </parameter>
};

struct Tag {
  TagKind kind = TagKind::kUnsure;
  size_t begin = 0, end = 0;  // in the text
  std::string_view name;      // without the blanks and quotes around it; points into the text
};

// The tag that begins at `at`.
Tag tag_at(std::string_view text, size_t at, Ending ending);
// The same behind any blanks (up to a few thousand).
Tag tag_behind_blanks(std::string_view text, size_t at, Ending ending);

}  // namespace pewter
