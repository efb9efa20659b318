// CudaOps: the stages on the GPU. bf16 between stages, f32 inside them, an f32 residual stream,
// bf16 keys and values, as the fast CPU path. Every method enqueues kernels on the device's stream
// and returns; scratch is laid out once by reserve(). Its twin is the CPU's reference path.
//
// Read next: weight_layout.h, linear/stream.h (the products), then the families: moe/, delta/,
// attention/, sampling/.
#pragma once

#include <vector>

#include "backend/cuda/attention/attention.h"
#include "backend/cuda/common/rows.h"
#include "backend/cuda/cuda_device.h"
#include "backend/cuda/delta/delta.h"
#include "backend/cuda/linear/net.h"
#include "backend/cuda/linear/router.h"
#include "backend/cuda/linear/stream.h"
#include "backend/cuda/moe/experts.h"
#include "backend/cuda/sampling/sampling.h"
#include "backend/ops.h"

namespace pewter {

class CudaOps final : public Ops {
 public:
  explicit CudaOps(std::shared_ptr<CudaDevice> device) : device_(std::move(device)) {}

  DType activation_dtype() const override { return DType::kBF16; }
  KvFormat kv_format() const override { return KvFormat::kBF16; }
  int64_t scratch_bytes(const OpsLimits& limits) const override;
  Status reserve(const OpsLimits& limits) override;

  void embed(const EmbedArgs&) override;
  void norm_linear(const NormLinearArgs&) override;
  void linear_add(const LinearAddArgs&) override;
  void add_residual(const AddResidualArgs&) override;
  void delta_mix(const DeltaMixArgs&) override;
  void delta_net(const DeltaNetArgs& args) override;
  void attention_prepare(const AttentionPrepareArgs&) override;
  void attention(const AttentionArgs&) override;
  void attention_net(const AttentionNetArgs& args) override;
  void route(const RouteArgs&) override;
  void experts_up(const ExpertsUpArgs&) override;
  void experts_down_add(const ExpertsDownAddArgs&) override;
  void moe(const MoeArgs& args) override;
  void mlp_up(const MlpUpArgs&) override;
  void final_norm(const FinalNormArgs&) override;
  void logits(const LogitsArgs&) override;
  void mtp_combine(const MtpCombineArgs&) override;
  void copy(const CopyArgs&) override;
  void sample(const SampleArgs&) override;
  void fold(const DeltaMixArgs& args, int64_t slot, int64_t accepted) override;

 private:
  // Scratch on the device, one block.
  struct Scratch {
    __nv_bfloat16* normed = nullptr;  // [rows, widest input]
    cuda::RouteWords route_words;
    float* router_logits = nullptr;  // [rows, experts + 1]
    int32_t* pairs = nullptr;        // [rows · top_k]
    cuda::RowBlock* blocks = nullptr;
    int32_t* block_count = nullptr;
    float* expert_outputs = nullptr;  // [rows · (top_k + 1), hidden]
    uint8_t* codes = nullptr;         // rows as integers: [rows or pairs] of coded_row_bytes(…)
    int32_t* readers = nullptr;       // delta decode: [sequences, key heads], zeros between steps
    float* mixed = nullptr;           // delta prefill: [rows + 16·sequences, channels]
    float* mixed_gates = nullptr;
    int32_t* claims = nullptr;
    int32_t* arrived = nullptr;
    float* partials = nullptr;  // slices of products of many rows
    int32_t* net_words = nullptr;
    uint32_t* net_mixed = nullptr;
    uint8_t* mixed_codes = nullptr;  // rows that a net has mixed, coded: [kMostNetRows]
    uint64_t* arrivals = nullptr;
    float* edited_logits = nullptr;  // [logits rows, vocabulary]
    cuda::SamplePart* sample_parts = nullptr;
    float* attention_partials = nullptr;
  };
  template <typename Arena>
  void lay_out(Arena& arena);

  cudaStream_t stream() const { return device_->stream(); }
  cuda::Gpu gpu() const { return device_->gpu(); }
  void product(const cuda::StreamArgs& args);
  void norm_rows_of(cuda::StreamArgs& job, const TensorView& x, const TensorView& weight,
                    float epsilon);
  cuda::StreamArgs normed_product(const NormLinearArgs& args) const;
  cuda::StreamArgs adding_product(const LinearAddArgs& args) const;
  void add_product(const LinearAddArgs& args, bool has_codes);
  bool wants_halves(const LinearAddArgs& args) const;
  cuda::NetProducts net_products(const NormLinearArgs& in, const LinearAddArgs& out,
                                 NextWeights next) const;
  void norm_net(cuda::NetProducts& net, const NormLinearArgs& args);
  // False, and nothing done, when the block cannot be one kernel.
  bool fused_delta_net(const DeltaNetArgs& args);
  // Not `runs`: only what they would do is decided.
  bool mix(const DeltaMixArgs& args, const LinearAddArgs* next, bool runs);
  bool fused_attention_net(const AttentionNetArgs& args);
  cuda::PrepareArgs prepare_args(const AttentionPrepareArgs& args) const;
  cuda::AttendArgs attend_args(const AttentionArgs& args) const;
  bool attend(const AttentionArgs& args, const LinearAddArgs* next, bool runs);
  cuda::Prefetch prefetch_of(std::initializer_list<const WeightMatrix*> first,
                             NextWeights next) const;
  // Norm and logits of the router, and what is left of routing.
  struct RouterStep {
    cuda::NormRows norm;
    cuda::RouterProduct job;
    cuda::RouteRows rows;
    bool coded = false;       // rows are left coded as well
    bool own_kernel = false;  // the router has one
    bool norms = false;       // which normalises the rows
  };
  RouterStep router_step(const RouteArgs& args, bool wants_codes) const;
  void run_router(const RouterStep& step);
  cuda::GroupPairs grouping(const TensorView& expert, int64_t experts) const;
  cuda::Grouping groups(const TensorView& expert, int64_t experts) const;
  // With a route's logits: routes and groups the rows as well.
  cuda::ExpertsUp up_products(const ExpertsUpArgs& args, bool has_codes,
                              const cuda::RouteRows& route = {}) const;
  cuda::ExpertsDown down_products(const ExpertsDownAddArgs& args,
                                  const cuda::RouteRows& route = {}) const;
  cuda::DeltaArgs delta_args(const DeltaMixArgs& args) const;
  cuda::DeltaArgs mix_args(const DeltaMixArgs& args) const;

  std::shared_ptr<CudaDevice> device_;
  OpsLimits limits_;
  Buffer memory_;
  Scratch scratch_;
};

}  // namespace pewter
