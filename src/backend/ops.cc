#include "backend/ops.h"

#include <algorithm>

namespace pewter {

void OpsLimits::cover(const OpsLimits& other) {
  widest_input = std::max(widest_input, other.widest_input);
  widest_output = std::max(widest_output, other.widest_output);
  head_dim = std::max(head_dim, other.head_dim);
  if (other.kv_heads == 0) return;
  const int64_t group = (other.query_heads + other.kv_heads - 1) / other.kv_heads;
  query_heads = std::max({query_heads, other.query_heads, group * kv_heads});
}

void Ops::delta_net(const DeltaNetArgs& args) {
  if (args.stages.runs(0)) norm_linear(args.in);
  if (args.stages.runs(1)) delta_mix(args.mix);
  if (args.stages.runs(2)) linear_add(args.out);
}

void Ops::attention_net(const AttentionNetArgs& args) {
  if (args.stages.runs(0)) norm_linear(args.in);
  if (args.stages.runs(1)) attention_prepare(args.prepare);
  if (args.stages.runs(2)) attention(args.attention);
  if (args.stages.runs(3)) linear_add(args.out);
}

void Ops::moe(const MoeArgs& args) {
  if (args.stages.runs(0)) route(args.route);
  if (args.stages.runs(1)) experts_up(args.up);
  if (args.stages.runs(2)) experts_down_add(args.down);
}

}  // namespace pewter
