// DeviceOps: a device's Ops on tensors in host memory, so that one op case serves every backend.
//
// For every op it lays the arguments out in one stretch of device memory, with guards of ones (NaN
// in every floating type) between them and in outputs that the op does not read. It runs the op
// twice from these bytes, first as it comes, then recorded and replayed, which also proves that the
// op allocates and waits for nothing. The test fails when the two runs differ in a bit, or when
// anything but the op's outputs changed.
#pragma once

#include <functional>
#include <vector>

#include "backend/factory.h"

namespace pewter::test {

class DeviceOps final : public Ops {
 public:
  explicit DeviceOps(Backend backend);

  DType activation_dtype() const override { return backend_.ops->activation_dtype(); }
  KvFormat kv_format() const override { return backend_.ops->kv_format(); }
  int64_t scratch_bytes(const OpsLimits& limits) const override {
    return backend_.ops->scratch_bytes(limits);
  }
  Status reserve(const OpsLimits& limits) override { return backend_.ops->reserve(limits); }

  void embed(const EmbedArgs&) override;
  void norm_linear(const NormLinearArgs&) override;
  void linear_add(const LinearAddArgs&) override;
  void add_residual(const AddResidualArgs&) override;
  void delta_mix(const DeltaMixArgs&) override;
  void delta_net(const DeltaNetArgs&) override;
  void attention_prepare(const AttentionPrepareArgs&) override;
  void attention(const AttentionArgs&) override;
  void attention_net(const AttentionNetArgs&) override;
  void route(const RouteArgs&) override;
  void experts_up(const ExpertsUpArgs&) override;
  void experts_down_add(const ExpertsDownAddArgs&) override;
  void moe(const MoeArgs&) override;
  void mlp_up(const MlpUpArgs&) override;
  void final_norm(const FinalNormArgs&) override;
  void logits(const LogitsArgs&) override;
  void mtp_combine(const MtpCombineArgs&) override;
  void copy(const CopyArgs&) override;
  void sample(const SampleArgs&) override;
  void fold(const DeltaMixArgs&, int64_t slot, int64_t accepted) override;

 private:
  // One op's tensors on the device.
  class Call {
   public:
    explicit Call(DeviceOps& ops) : device_(*ops.backend_.device), memory_(ops.memory_) {}

    TensorView in(const TensorView& host) { return place(host, Use::kIn); }
    TensorView out(const TensorView& host) { return place(host, Use::kOut); }
    TensorView in_out(const TensorView& host) { return place(host, Use::kInOut); }
    template <typename T>
    const T* in(const T* host, int64_t count) {
      return reinterpret_cast<const T*>(
          place(host, count * static_cast<int64_t>(sizeof(T)), Use::kIn));
    }
    Batch batch(const Batch& host);
    KvLayer cache(const KvLayer& host, const Batch& batch, bool is_written);
    RecurrentLayer recurrent(const RecurrentLayer& host);
    DeltaMixArgs delta(const DeltaMixArgs& host, const Batch& batch);
    AttentionPrepareArgs prepare(const AttentionPrepareArgs& host, const Batch& batch,
                                 const TensorView& in_there);
    RouteArgs routing(const RouteArgs& host);
    ExpertsUpArgs up(const ExpertsUpArgs& host, const TensorView& normed, const TensorView& expert);

    // Runs what `enqueue` enqueues, checks, and brings the outputs home.
    void run(const char* op, const std::function<void()>& enqueue);

   private:
    enum class Use { kIn, kOut, kInOut };
    struct Part {
      std::byte* host;
      size_t at, bytes;
    };
    TensorView place(const TensorView& host, Use use);
    std::byte* place(const void* host, int64_t bytes, Use use);
    std::vector<std::byte> run_once(const std::function<void()>& enqueue);

    Device& device_;
    const Buffer& memory_;
    std::vector<std::byte> image_;  // of device memory
    std::vector<Part> outputs_;
  };

  Backend backend_;
  Buffer memory_;
};

}  // namespace pewter::test
