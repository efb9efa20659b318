// Arrays of which some items, so many, satisfy a schema: contains, minContains, maxContains.
#pragma once

#include "grammar/object_schema.h"

namespace pewter::grammar {

// Arrays of a node that has one `contains`, brackets included. not_one: the schema of the items
// that are none of those; null where it has no contrary, and then there is no most of them. Errors
// are add_schema's.
Result<Expr> containing_array(const SchemaNode& node, const SchemaNode::Contains& contains,
                              const std::optional<SchemaRef>& not_one,
                              const MemberContext& context);

}  // namespace pewter::grammar
