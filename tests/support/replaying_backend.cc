#include "support/replaying_backend.h"

#include <map>
#include <vector>

#include "backend/forwarding_ops.h"
#include "support/forwarding_device.h"

namespace pewter::test {
namespace {

using Calls = std::vector<std::function<void(Ops&)>>;

// Ops that are kept while a step is.
class KeepingOps final : public ForwardingOps {
 public:
  explicit KeepingOps(std::unique_ptr<Ops> ops) : ForwardingOps(*ops), owned_(std::move(ops)) {}

  // Where calls are kept from now on; null: nowhere.
  void keep(Calls* calls) { calls_ = calls; }
  void replay(const Calls& calls) const {
    for (const auto& call : calls) call(ops_);
  }

  void embed(const EmbedArgs& args) override { run(args, &Ops::embed); }
  void norm_linear(const NormLinearArgs& args) override {
    NormLinearArgs own = args;
    run(own, &Ops::norm_linear, matrices(own));
  }
  void linear_add(const LinearAddArgs& args) override { run(args, &Ops::linear_add); }
  void add_residual(const AddResidualArgs& args) override { run(args, &Ops::add_residual); }
  void delta_mix(const DeltaMixArgs& args) override { run(args, &Ops::delta_mix); }
  void delta_net(const DeltaNetArgs& args) override {
    DeltaNetArgs own = args;
    own.next = {};  // a list of the caller's, and no part of what is computed
    run(own, &Ops::delta_net, matrices(own.in));
  }
  void attention_prepare(const AttentionPrepareArgs& args) override {
    run(args, &Ops::attention_prepare);
  }
  void attention(const AttentionArgs& args) override { run(args, &Ops::attention); }
  void attention_net(const AttentionNetArgs& args) override {
    AttentionNetArgs own = args;
    own.next = {};
    run(own, &Ops::attention_net, matrices(own.in));
  }
  void route(const RouteArgs& args) override { run(args, &Ops::route); }
  void experts_up(const ExpertsUpArgs& args) override { run(args, &Ops::experts_up); }
  void experts_down_add(const ExpertsDownAddArgs& args) override {
    run(args, &Ops::experts_down_add);
  }
  void moe(const MoeArgs& args) override { run(args, &Ops::moe); }
  void mlp_up(const MlpUpArgs& args) override { run(args, &Ops::mlp_up); }
  void final_norm(const FinalNormArgs& args) override { run(args, &Ops::final_norm); }
  void logits(const LogitsArgs& args) override { run(args, &Ops::logits); }
  void mtp_combine(const MtpCombineArgs& args) override { run(args, &Ops::mtp_combine); }
  void copy(const CopyArgs& args) override { run(args, &Ops::copy); }
  void sample(const SampleArgs& args) override { run(args, &Ops::sample); }

 private:
  using Matrices = std::shared_ptr<const std::vector<const WeightMatrix*>>;
  // A list of matrices that outlives the caller's.
  static Matrices matrices(NormLinearArgs& args) {
    auto kept =
        std::make_shared<const std::vector<const WeightMatrix*>>(args.w.begin(), args.w.end());
    args.w = *kept;
    return kept;
  }
  template <typename Args>
  void run(const Args& args, void (Ops::*op)(const Args&), const Matrices& lists = {}) {
    if (calls_ != nullptr) calls_->push_back([args, op, lists](Ops& ops) { (ops.*op)(args); });
    (ops_.*op)(args);
  }

  std::unique_ptr<Ops> owned_;
  Calls* calls_ = nullptr;
};

class ReplayingDevice final : public ForwardingDevice {
 public:
  ReplayingDevice(std::shared_ptr<Device> device, KeepingOps& ops)
      : ForwardingDevice(*device), owned_(std::move(device)), ops_(ops) {}

  // Steps may be enqueued ahead, as on the GPU; they run at once.
  bool is_asynchronous() const override { return true; }
  void run_step(const void* owner, uint64_t key, const std::function<void()>& enqueue) override {
    const auto [step, is_new] = steps_.try_emplace({owner, key});
    if (is_new) return enqueue();
    if (!step->second.empty()) return ops_.replay(step->second);
    ops_.keep(&step->second);
    enqueue();
    ops_.keep(nullptr);
  }
  void forget_steps(const void* owner) override {
    std::erase_if(steps_, [owner](const auto& step) { return step.first.first == owner; });
  }

 private:
  std::shared_ptr<Device> owned_;
  KeepingOps& ops_;
  std::map<std::pair<const void*, uint64_t>, Calls> steps_;
};

}  // namespace

Backend make_replaying(Backend backend) {
  auto ops = std::make_unique<KeepingOps>(std::move(backend.ops));
  auto device = std::make_shared<ReplayingDevice>(std::move(backend.device), *ops);
  return {.name = backend.name, .device = std::move(device), .ops = std::move(ops)};
}

}  // namespace pewter::test
