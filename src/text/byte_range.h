// A half-open range of byte offsets into a text. Rendered prompts carry a list of them: the bytes
// that came from the client, in which no special token may be recognised.
#pragma once

#include <cstddef>

namespace pewter {

struct ByteRange {
  size_t begin = 0;
  size_t end = 0;  // one past the last byte
  bool operator==(const ByteRange&) const = default;
};

}  // namespace pewter
