// StepRecorder: hands ops on and, when told to, keeps the arguments of every call. They are structs
// of views, so each stage of a recorded step can run again by itself, on the tensors and weights it
// ran on, for as long as those and the step's batch live.
#pragma once

#include <functional>
#include <vector>

#include "backend/forwarding_ops.h"
#include "backend/op_bytes.h"

namespace pewter {

using OpCall = std::function<void(Ops&)>;

// One stage of one recorded call.
struct StageCall {
  std::string_view stage;  // "delta_in", "head"
  OpCall run;
  std::vector<OpCall> before;  // stages of its block that make what it reads
  std::function<double(const OpLoad&)> bytes;
  const void* memory = nullptr;  // of its weights, or state where it has none: tells layers apart
  TensorView expert;             // [m, top_k] i32 of the routed experts it reads, or undefined
};

struct RecordedStep {
  std::vector<StageCall> stages;  // in the order of the step
  std::vector<StageCall> blocks;  // of several stages, whole: a backend may run them as one
  std::vector<OpCall> calls;      // the same, blocks whole
};

class StepRecorder final : public ForwardingOps {
 public:
  using ForwardingOps::ForwardingOps;

  // Where calls are kept from now on; null: nowhere.
  void record(RecordedStep* to) { step_ = to; }

  void embed(const EmbedArgs& args) override;
  void delta_net(const DeltaNetArgs& args) override;
  void attention_net(const AttentionNetArgs& args) override;
  void moe(const MoeArgs& args) override;
  void mlp_up(const MlpUpArgs& args) override;
  void linear_add(const LinearAddArgs& args) override;  // outside of blocks: the dense MLP's
  void final_norm(const FinalNormArgs& args) override;
  void logits(const LogitsArgs& args) override;
  void sample(const SampleArgs& args) override;

 private:
  RecordedStep* step_ = nullptr;
};

}  // namespace pewter
