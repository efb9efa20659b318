// Operations of Python's str on marked texts, shared by methods and filters.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "text/jinja/limits.h"
#include "text/jinja/text.h"

namespace pewter::jinja {

enum class Side { kLeft, kRight, kBoth };
// Without characters at the ends that are in `characters`; null means whitespace.
Text strip(const Text& text, Side side, const Text* characters);

// At most `most` cuts, negative for no bound; from the right when from_right. Parts are in reading
// order either way. separator must not be empty.
Result<std::vector<Text>> split(Budget& budget, const Text& text, std::string_view separator,
                                int64_t most, bool from_right);
// At runs of whitespace; no part is empty.
Result<std::vector<Text>> split_words(Budget& budget, const Text& text, int64_t most,
                                      bool from_right);
Result<std::vector<Text>> split_lines(Budget& budget, const Text& text, bool keep_ends);

// The first `most` occurrences of old_text (negative: all) replaced; an empty one occurs before
// every character and at the end. Errors: too long a result.
Result<Text> replace(Budget& budget, const Text& text, const Text& old_text, const Text& new_text,
                     int64_t most);

// Padded with `fill` to a width in characters. Errors: too long a result.
enum class Align { kLeft, kRight, kCenter };
Result<Text> pad(Budget& budget, const Text& text, int64_t width, const Text& fill, Align align);

}  // namespace pewter::jinja
