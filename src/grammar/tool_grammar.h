// Tool calls as a grammar, in the dialect that the models are trained on: values of text stand as
// they are between tags, other values as JSON. docs/tool-calls.md has the dialect, and where a
// value ends; what this grammar admits, the output parser reads as the calls that were meant.
#pragma once

#include "grammar/answer_rules.h"
#include "grammar/json_text.h"

namespace pewter::grammar {

// Whether some tool asks for arguments that satisfy its schema ("strict": true).
bool has_strict_tool(const Json& tools);
// The arguments of strict tools satisfy their schemas. Those of other tools have the keys that the
// schema names, all that are required, and values of their types as far as those are plain. Keys
// come in any order, each once. Errors name the tool and the place in its schema: kUnsupported,
// kInvalidArgument.
Result<Expr> add_tool_calls(const ToolCallRules& calls, Grammar& grammar);

// Text up to a tag and the tag; text without the tag.
Result<Expr> text_through(std::string_view tag);
Result<Expr> text_without(std::string_view tag);

}  // namespace pewter::grammar
