#include "backend/ops.h"

namespace pewter {

void Ops::delta_net(const DeltaNetArgs& args) {
  norm_linear(args.in);
  delta_mix(args.mix);
  linear_add(args.out);
}

void Ops::attention_net(const AttentionNetArgs& args) {
  norm_linear(args.in);
  attention_prepare(args.prepare);
  attention(args.attention);
  linear_add(args.out);
}

void Ops::moe(const MoeArgs& args) {
  route(args.route);
  experts_up(args.up);
  experts_down_add(args.down);
}

}  // namespace pewter
