// The members of an object schema: which keys may come, in which order, how often, and with what.
#pragma once

#include <functional>

#include "grammar/json_text.h"
#include "grammar/schema_node.h"

namespace pewter::grammar {

// What members need of the compiler of whole schemas.
struct MemberContext {
  JsonRules& rules;
  bool narrow = true;  // SchemaOptions::narrow
  // The expression of the values that satisfy all requirements.
  std::function<Result<Expr>(Requirements)> values_of;
  std::function<Result<std::vector<SchemaNode>>(const Requirements&)> read;
};

// Objects of a node, brackets included. Errors are add_schema's.
Result<Expr> object_of(const SchemaNode& node, const MemberContext& context);

// One, and between `least` and `most` more, with commas between.
Expr comma_list(JsonRules& rules, const Expr& one, uint64_t least, uint64_t most);

// Whether parts name some and say nothing of the others, which then are not meant to be there.
template <typename Part, typename Named>
bool is_closed(const std::vector<Part>& parts, const Named& names_some) {
  bool names = false;
  for (const Part& part : parts) {
    if (part.others) return false;
    names |= names_some(part);
  }
  return names;
}

}  // namespace pewter::grammar
