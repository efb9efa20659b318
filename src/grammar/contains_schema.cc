#include "grammar/contains_schema.h"

#include <algorithm>

namespace pewter::grammar {
namespace {

constexpr uint64_t kMostNodes = 4096;

}  // namespace

// Nodes of a graph for each number of items and, of them, of those that count; beyond what matters
// both numbers stay. must: an item comes now; may: one has come.
Result<Expr> containing_array(const SchemaNode& node, const SchemaNode::Contains& contains,
                              const std::optional<SchemaRef>& not_one,
                              const MemberContext& context) {
  uint64_t items = std::max<uint64_t>(node.min_items, 1);
  for (const SchemaNode::Items& part : node.items)
    items = std::max<uint64_t>(items, part.first.size());
  if (node.max_items) items = *node.max_items;
  const uint64_t counted = std::max(contains.least, contains.most.value_or(0));
  if (items >= kMostNodes || counted >= kMostNodes || (items + 1) * (counted + 1) > kMostNodes)
    return unsupported_keyword(node.pointer, "contains is not supported beside counts that large");
  if (node.min_items > items || (contains.most && *contains.most < contains.least))
    return nothing();

  GraphBuilder graph;
  std::vector<std::vector<uint32_t>> must(items + 1), may(items + 1);
  for (uint64_t i = 0; i <= items; ++i)
    for (uint64_t k = 0; k <= counted; ++k) {
      must[i].push_back(graph.add_node());
      may[i].push_back(graph.add_node());
    }
  graph.add(GraphBuilder::kBegin, must[0][0], literal(""));
  for (uint64_t i = 0; i <= items; ++i) {
    const bool is_last = node.max_items && i == items;
    const Requirements any = node.item(i);
    Requirements one = any, other = any;
    one.push_back(contains.ref);
    if (not_one) other.push_back(*not_one);
    TRY_ASSIGN(const Expr any_item, context.values_of(any));
    TRY_ASSIGN(const Expr one_item, context.values_of(std::move(one)));
    TRY_ASSIGN(const Expr other_item, context.values_of(std::move(other)));
    for (uint64_t k = 0; k <= counted; ++k) {
      if (i > 0 && i >= node.min_items && k >= contains.least)
        graph.add(may[i][k], GraphBuilder::kEnd, literal(""));
      if (is_last) continue;
      if (i > 0) graph.add(may[i][k], must[i][k], context.rules.comma());
      const uint64_t next = std::min(i + 1, items);
      if (k == counted && !contains.most) {
        graph.add(must[i][k], may[next][k], any_item);
        continue;
      }
      graph.add(must[i][k], may[next][k], other_item);
      if (k < counted) graph.add(must[i][k], may[next][k + 1], one_item);
    }
  }
  return context.rules.in_brackets('[', std::move(graph).build(),
                                   node.min_items == 0 && contains.least == 0, ']');
}

}  // namespace pewter::grammar
