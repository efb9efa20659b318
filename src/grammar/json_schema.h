// JSON Schema → grammar of the JSON texts that satisfy it. docs/structured-output.md lists what is
// supported; what would restrict the answer and is not supported is refused with its name and
// place. Every text of the grammar satisfies the schema. Not every text that satisfies it is in the
// grammar: members come in the order of `properties`, others behind them, and numbers and keys are
// written in the usual way.
#pragma once

#include "grammar/json_text.h"
#include "grammar/schema_node.h"

namespace pewter::grammar {

struct SchemaOptions {
  // What authors mean and JSON Schema does not say: properties without a type describe an object
  // and nothing else; where properties are named, others are not welcome; prefixItems are all
  // items.
  bool narrow = true;
};

// Adds the rules of a schema to a grammar; the expression of its values. Errors name the place as a
// JSON pointer: kInvalidArgument ("#/properties/a/type: …"), kUnsupported ("…: uniqueItems is not
// supported").
Result<Expr> add_schema(const Json& schema, const SchemaOptions& options, Grammar& grammar,
                        JsonRules& rules);
// The same for a part of a document, in which its references are looked up.
Result<Expr> add_schema_part(const Json& document, const Requirements& part,
                             const SchemaOptions& options, Grammar& grammar, JsonRules& rules);

}  // namespace pewter::grammar
