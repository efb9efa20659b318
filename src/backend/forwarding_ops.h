// ForwardingOps: an Ops that hands everything on to another one, for those that watch what passes.
// Blocks go on whole, so that a backend's fused form is what runs.
#pragma once

#include "backend/ops.h"

namespace pewter {

class ForwardingOps : public Ops {
 public:
  explicit ForwardingOps(Ops& ops) : ops_(ops) {}  // which outlives it

  DType activation_dtype() const override { return ops_.activation_dtype(); }
  KvFormat kv_format() const override { return ops_.kv_format(); }
  int64_t scratch_bytes(const OpsLimits& limits) const override {
    return ops_.scratch_bytes(limits);
  }
  Status reserve(const OpsLimits& limits) override { return ops_.reserve(limits); }
  void embed(const EmbedArgs& args) override { ops_.embed(args); }
  void norm_linear(const NormLinearArgs& args) override { ops_.norm_linear(args); }
  void linear_add(const LinearAddArgs& args) override { ops_.linear_add(args); }
  void add_residual(const AddResidualArgs& args) override { ops_.add_residual(args); }
  void delta_mix(const DeltaMixArgs& args) override { ops_.delta_mix(args); }
  void delta_net(const DeltaNetArgs& args) override { ops_.delta_net(args); }
  void attention_prepare(const AttentionPrepareArgs& args) override {
    ops_.attention_prepare(args);
  }
  void attention(const AttentionArgs& args) override { ops_.attention(args); }
  void attention_net(const AttentionNetArgs& args) override { ops_.attention_net(args); }
  void route(const RouteArgs& args) override { ops_.route(args); }
  void experts_up(const ExpertsUpArgs& args) override { ops_.experts_up(args); }
  void experts_down_add(const ExpertsDownAddArgs& args) override { ops_.experts_down_add(args); }
  void moe(const MoeArgs& args) override { ops_.moe(args); }
  void mlp_up(const MlpUpArgs& args) override { ops_.mlp_up(args); }
  void final_norm(const FinalNormArgs& args) override { ops_.final_norm(args); }
  void logits(const LogitsArgs& args) override { ops_.logits(args); }
  void mtp_combine(const MtpCombineArgs& args) override { ops_.mtp_combine(args); }
  void copy(const CopyArgs& args) override { ops_.copy(args); }
  void sample(const SampleArgs& args) override { ops_.sample(args); }
  void fold(const DeltaMixArgs& args, int64_t slot, int64_t accepted) override {
    ops_.fold(args, slot, accepted);
  }

 protected:
  Ops& ops_;
};

}  // namespace pewter
