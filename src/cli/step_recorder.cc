#include "cli/step_recorder.h"

#include <memory>

namespace pewter {
namespace {

// A list of matrices that outlives the caller's.
using Matrices = std::shared_ptr<const std::vector<const WeightMatrix*>>;
Matrices keep(std::span<const WeightMatrix* const>& w) {
  auto kept = std::make_shared<const std::vector<const WeightMatrix*>>(w.begin(), w.end());
  w = *kept;
  return kept;
}

// Adds a call of one stage.
template <typename Args>
void add(RecordedStep& step, std::string_view stage, const Args& args, void (Ops::*op)(const Args&),
         const void* memory) {
  const OpCall run = [args, op](Ops& ops) { (ops.*op)(args); };
  step.calls.push_back(run);
  step.stages.push_back({.stage = stage,
                         .run = run,
                         .bytes = [args](const OpLoad& load) { return op_bytes(args, load); },
                         .memory = memory});
}

// Adds a block: whole, and its stages by themselves.
template <typename Args>
class Block {
 public:
  Block(RecordedStep& step, std::string_view name, const Args& args, void (Ops::*op)(const Args&),
        std::vector<Matrices> kept)
      : step_(step), args_(args), op_(op), kept_(std::move(kept)) {
    step.calls.push_back([args, op, kept = kept_](Ops& ops) { (ops.*op)(args); });
    step.blocks.push_back(
        {.stage = name, .run = of(-1), .bytes = [](const OpLoad&) { return 0.0; }});
  }

  template <typename StageArgs>
  void stage(std::string_view name, const StageArgs& stage, const void* memory,
             const TensorView& expert = {}) {
    const OpCall run = of(static_cast<int>(before_.size()));
    const auto bytes = [stage, kept = kept_](const OpLoad& load) { return op_bytes(stage, load); };
    step_.stages.push_back({.stage = name,
                            .run = run,
                            .before = before_,
                            .bytes = bytes,
                            .memory = memory,
                            .expert = expert});
    before_.push_back(run);
    StageCall& block = step_.blocks.back();
    block.bytes = [before = block.bytes, bytes](const OpLoad& load) {
      return before(load) + bytes(load);
    };
    if (block.memory == nullptr) block.memory = memory;
    if (expert.defined()) block.expert = expert;
  }

 private:
  // By itself, nothing comes next.
  OpCall of(int only) const {
    return [args = args_, op = op_, kept = kept_, only](Ops& ops) {
      Args one = args;
      if constexpr (requires { one.next; }) one.next = {};
      one.stages.only = only;
      (ops.*op)(one);
    };
  }

  RecordedStep& step_;
  const Args args_;
  void (Ops::*op_)(const Args&);
  std::vector<Matrices> kept_;
  std::vector<OpCall> before_;
};

}  // namespace

void StepRecorder::embed(const EmbedArgs& args) {
  if (step_ != nullptr) add(*step_, "embed", args, &Ops::embed, args.table.values.data());
  ops_.embed(args);
}

void StepRecorder::delta_net(const DeltaNetArgs& args) {
  if (step_ != nullptr) {
    DeltaNetArgs net = args;
    const std::vector<Matrices> kept = {keep(net.in.w), keep(net.next)};
    Block block(*step_, "delta_block", net, &Ops::delta_net, kept);
    block.stage("delta_in", net.in, net.in.w[0]->values.data());
    block.stage("delta_rule", net.mix, net.mix.state.state.data());
    block.stage("delta_out", net.out, net.out.w.values.data());
  }
  ops_.delta_net(args);
}

void StepRecorder::attention_net(const AttentionNetArgs& args) {
  if (step_ != nullptr) {
    AttentionNetArgs net = args;
    const std::vector<Matrices> kept = {keep(net.in.w), keep(net.next)};
    Block block(*step_, "attention_block", net, &Ops::attention_net, kept);
    block.stage("attention_in", net.in, net.in.w[0]->values.data());
    block.stage("attention_prepare", net.prepare, net.prepare.kv.keys);
    block.stage("attention", net.attention, net.attention.kv.keys);
    block.stage("attention_out", net.out, net.out.w.values.data());
  }
  ops_.attention_net(args);
}

void StepRecorder::moe(const MoeArgs& args) {
  if (step_ != nullptr) {
    Block block(*step_, "experts_block", args, &Ops::moe, {});
    block.stage("route", args.route, args.route.router.values.data());
    block.stage("experts_up", args.up, args.up.gate.values.data(), args.up.expert);
    block.stage("experts_down", args.down, args.down.down.values.data(), args.down.expert);
  }
  ops_.moe(args);
}

void StepRecorder::mlp_up(const MlpUpArgs& args) {
  if (step_ != nullptr) add(*step_, "mlp_up", args, &Ops::mlp_up, args.gate.values.data());
  ops_.mlp_up(args);
}

void StepRecorder::linear_add(const LinearAddArgs& args) {
  if (step_ != nullptr) add(*step_, "mlp_down", args, &Ops::linear_add, args.w.values.data());
  ops_.linear_add(args);
}

void StepRecorder::final_norm(const FinalNormArgs& args) {
  if (step_ != nullptr) add(*step_, "final_norm", args, &Ops::final_norm, args.norm.data());
  ops_.final_norm(args);
}

void StepRecorder::logits(const LogitsArgs& args) {
  if (step_ != nullptr) add(*step_, "head", args, &Ops::logits, args.head.values.data());
  ops_.logits(args);
}

void StepRecorder::sample(const SampleArgs& args) {
  if (step_ != nullptr) add(*step_, "sampling", args, &Ops::sample, args.logits.data());
  ops_.sample(args);
}

}  // namespace pewter
