// An answer as one JSON object, for programs.
#pragma once

#include "cli/answer.h"

namespace pewter {

// text, reasoning (null when there was none), raw (with options.raw), finish_reason, token counts,
// seed, seconds and rates; logprobs when they were asked for.
Json answer_json(const Answer& answer, const Tokenizer& tokenizer, double load_seconds);

}  // namespace pewter
