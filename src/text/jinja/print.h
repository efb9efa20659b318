// Values as text: Python's str() and repr(), and json.dumps.
#pragma once

#include <string>

#include "base/result.h"
#include "text/jinja/value.h"

namespace pewter::jinja {

// Appends str(value). Strings keep their marks; everything else prints as foreign text.
Status append_str(Budget& budget, TextBuilder& out, const Value& value);
Status append_repr(Budget& budget, TextBuilder& out, const Value& value);
// str(value); a string is returned as it is, markup too.
Result<Value> str(Budget& budget, const Value& value);
// The text of a string in quotes, as repr prints it. For messages.
std::string quoted(std::string_view text);

struct JsonStyle {
  bool ascii = false;
  bool sort_keys = false;
  bool lines = false;  // break lines and indent them
  std::string indent;
  std::string item_separator = ", ";
  std::string key_separator = ": ";
};
// json.dumps(value). All of the result is foreign. Errors on values that JSON does not know.
Result<Value> to_json(Budget& budget, const Value& value, const JsonStyle& style);

}  // namespace pewter::jinja
