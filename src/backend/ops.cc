#include "backend/ops.h"

namespace pewter {

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
