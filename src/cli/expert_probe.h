// ExpertProbe: hands ops on and, when told to, counts how many different experts each layer's rows
// chose.
#pragma once

#include "backend/forwarding_ops.h"

namespace pewter {

// Different experts among those of some rows, read from the device. expert: [m, top_k] i32.
int64_t count_distinct(Device& device, const TensorView& expert);

class ExpertProbe final : public ForwardingOps {
 public:
  // Both outlive the probe.
  ExpertProbe(Ops& ops, Device& device) : ForwardingOps(ops), device_(device) {}

  void count_experts(bool on) { counting_ = on; }
  void forget() { distinct_ = layers_ = 0; }
  // Mean over the layers routed while counting was on; 0 when there were none.
  double distinct_experts() const {
    return layers_ == 0 ? 0 : static_cast<double>(distinct_) / static_cast<double>(layers_);
  }

  void moe(const MoeArgs& args) override {
    ops_.moe(args);
    if (!counting_) return;
    distinct_ += count_distinct(device_, args.route.expert);
    ++layers_;
  }

 private:
  Device& device_;
  bool counting_ = false;
  int64_t distinct_ = 0, layers_ = 0;
};

}  // namespace pewter
