// Unicode normalisation form C as the reference tokenizer computes it, in time linear in the text
// whatever the text is (long runs of combining marks included). Character properties come from
// utf8proc, but the reference's are those of Unicode 9: marks added later do not change places or
// join letters there, and models have learnt from text that was treated so.
#pragma once

#include <string>
#include <string_view>

#include "base/result.h"

namespace pewter {

// text must be valid UTF-8. Errors: kInternal when the Unicode library fails.
Result<std::string> to_nfc(std::string_view text);

// True when NFC changes nothing and that can be told at a glance: every character is one that never
// decomposes, reorders or joins the one before it. ASCII and the common scripts pass.
bool is_trivially_nfc(std::string_view text);

// True for the marks added after Unicode 9, which the reference leaves where they are.
bool is_mark_unknown_to_reference(char32_t c);

}  // namespace pewter
