// ReferenceOps: every op in plain scalar float, one row after another, exactly as docs/numerics.md
// writes it. It is the definition the fast paths are tested against; it is not meant to be quick.
// Weights are decoded row by row through the formats' reference decoders.
#pragma once

#include <vector>

#include "backend/cpu/sampling.h"

namespace pewter {

class ReferenceOps : public Ops {
 public:
  DType activation_dtype() const override { return DType::kF32; }
  KvFormat kv_format() const override { return KvFormat::kF32; }
  int64_t scratch_bytes(const OpsLimits& limits) const override;
  Status reserve(const OpsLimits& limits) override;

  void embed(const EmbedArgs&) override;
  void norm_linear(const NormLinearArgs&) override;
  void linear_add(const LinearAddArgs&) override;
  void add_residual(const AddResidualArgs&) override;
  void delta_mix(const DeltaMixArgs&) override;
  void attention_prepare(const AttentionPrepareArgs&) override;
  void attention(const AttentionArgs&) override;
  void route(const RouteArgs&) override;
  void experts_up(const ExpertsUpArgs&) override;
  void experts_down_add(const ExpertsDownAddArgs&) override;
  void mlp_up(const MlpUpArgs&) override;
  void final_norm(const FinalNormArgs&) override;
  void logits(const LogitsArgs&) override;
  void mtp_combine(const MtpCombineArgs&) override;
  void copy(const CopyArgs&) override;
  void sample(const SampleArgs&) override;
  void fold(const DeltaMixArgs& args, int64_t slot, int64_t accepted) override;

 private:
  // out[r·stride + i] = Σ_k w[index][i, k]·x[r, k] for every row and output.
  void linear(const float* x, int64_t m, const WeightMatrix& w, int64_t index, float* out,
              int64_t out_stride);
  // Rows for the delta rule: columns before the convolution behind a window of three earlier ones.
  struct DeltaRows {
    const float* window;
    const float* columns;
    int64_t column_stride;
    const float* gates;  // [count, 2, Hv]
    int64_t count;
    int64_t first_row;  // row of args.in and args.out, or -1: no output
  };
  void delta_rows(const DeltaMixArgs& args, const DeltaRows& rows, float* state);

  HostSampler sampler_;
  // Scratch, sized by reserve().
  std::vector<float> normed_, projected_, weight_row_, experts_, chunk_, gates_, state_copy_;
};

}  // namespace pewter
