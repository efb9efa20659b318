// A parameter's raw text, as a model writes it between tags, becomes the JSON value its schema
// wants. Types are tried in this order, and the first that fits wins:
//
//   null      null or None, in any case; also where the schema has no type string
//   integer   42, 007, 4.0
//   number    finite; an integral value prints as an integer
//   boolean   true, false, 1, 0, in any case
//   object, array   JSON, or else a Python literal: {'a': True}
//   string    the text as it stands
//
// What fits nothing stays text, so that a client can complain to its model.
#pragma once

#include <optional>
#include <string_view>

#include "base/json.h"
#include "text/tool_schema.h"

namespace pewter {

// An empty set of types wants text. `text` is UTF-8.
Json tool_value(std::string_view text, TypeSet types);

// A Python literal of dicts, lists, tuples, strings, numbers, True, False and None (JSON's names
// too); nothing when text is none. Tuples become lists; keys must be strings.
std::optional<Json> parse_python_literal(std::string_view text);

}  // namespace pewter
