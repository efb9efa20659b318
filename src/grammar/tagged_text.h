// Free text with parts of a given form in it: a part begins where one of the triggers has been
// written, and is the rest of a beginning, JSON of a schema, and an end. vLLM's structural_tag.
#pragma once

#include "grammar/json_text.h"

namespace pewter::grammar {

// {"triggers": ["<fn="], "structures": [{"begin": "<fn=f>", "schema": {…}, "end": "</fn>"}]}
// Errors name the place: "structures[0].begin: …".
Result<Expr> add_tagged_text(const Json& tags, Grammar& grammar, JsonRules& rules);

}  // namespace pewter::grammar
