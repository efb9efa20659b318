// The texts of a string schema: its patterns, formats and lengths at once.
#pragma once

#include <functional>

#include "grammar/schema_node.h"

namespace pewter::grammar {

// How the characters of a text are written.
struct TextWriting {
  std::function<Expr(const std::vector<CodePointRange>&)> encode;
  Expr any;  // any character at all
};

// Whether a node restricts strings by more than enum and const.
bool restricts_text(const SchemaNode& node);
// Whether a value of the node's enum is a text that its other keywords admit. Errors as text_of's.
Result<bool> admits_text(const SchemaNode& node, const Json& value);
// The text between the quotes. Errors as add_schema's.
Result<Expr> text_of(const SchemaNode& node, const TextWriting& writing);

}  // namespace pewter::grammar
