// CpuOps: the fast CPU path. bf16 between stages, f32 inside them, an f32 residual stream, bf16
// keys and values. Kernels are portable vector code chosen for the machine at start (simd.h); the
// threads share outputs, rows and heads and never the terms of one sum, so their number changes no
// bit. Its twin is reference/reference_ops.h. Read dot.h, then linear.h, then the stages: moe.cc,
// delta.h, attention.h.
#pragma once

#include "backend/cpu/cpu_scratch.h"
#include "backend/cpu/rows.h"
#include "backend/cpu/sampling.h"

namespace pewter {

class CpuOps final : public Ops {
 public:
  explicit CpuOps(std::shared_ptr<ThreadPool> pool) : workers_(std::move(pool)) {}
  // A pool of its own; 0 threads: all this process may use.
  explicit CpuOps(int threads) : CpuOps(std::make_shared<ThreadPool>(threads)) {}

  DType activation_dtype() const override { return DType::kBF16; }
  KvFormat kv_format() const override { return KvFormat::kBF16; }
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
  // Fills m input rows of k floats in parallel, `fill(row, floats)` each, and stores them in the
  // forms the stage's matrices want. The rows live until the next call.
  template <typename Fill>
  InputRows make_inputs(int64_t m, int64_t k, const InputForms& forms, const Fill& fill);
  // Pointers to rows first … first + m − 1 of a tensor, for a job's out or residual.
  std::byte* const* out_rows(const TensorView& out, int64_t first, int64_t m);
  float* const* residual_rows(const TensorView& residual, int64_t first, int64_t m);

  void route_rows(const RouteArgs& args, int64_t first, int64_t m);
  void experts_up_rows(const ExpertsUpArgs& args, int64_t first, int64_t m);
  void experts_down_rows(const ExpertsDownAddArgs& args, int64_t first, int64_t m);
  void group_by_expert(const TensorView& expert, int64_t first, int64_t m, int64_t experts);

  Workers workers_;
  OpsLimits limits_;
  HostSampler sampler_;
  Buffer memory_;
  CpuScratch scratch_;
};

// Rows worth a hand-over to the threads when each is a norm or a conversion (a few microseconds of
// work in all).
inline constexpr int64_t kRowsWorthThreads = 8;

template <typename Fill>
InputRows CpuOps::make_inputs(int64_t m, int64_t k, const InputForms& forms, const Fill& fill) {
  CHECK(m * input_stride(k) <= scratch_.inputs.inputs, m, " rows of ", k,
        " inputs exceed the reserved scratch");
  workers_.run_if(m, kRowsWorthThreads, [&](int64_t r, int64_t worker) {
    store_input(scratch_.inputs, r, r * input_stride(k), k, forms,
                scratch_.workers[static_cast<size_t>(worker)].row,
                [&](float* row) { fill(r, row); });
  });
  return scratch_.inputs.rows.only(forms);
}

}  // namespace pewter
