#include "backend/ops.h"

namespace pewter {

void Ops::moe(const MoeArgs& args) {
  route(args.route);
  experts_up(args.up);
  experts_down_add(args.down);
}

}  // namespace pewter
