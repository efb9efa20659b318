// A recorded step is the step: run again, whole or stage by stage, it leaves the same bits, and its
// stages need the bytes that decode_bytes counts.

#include "cli/step_recorder.h"

#include <map>
#include <set>

#include "cli/step_profile.h"
#include "model/qwen35/step_bytes.h"
#include "support/test_rig.h"

namespace pewter {
namespace {

using test::TestRig;

constexpr int64_t kContext = 70;
constexpr RunnerOptions kOptions{.chunk_rows = 64, .max_sequences = 2, .decode_rows = 4};

class RecordedSteps : public test::RigTest {
 protected:
  void SetUp() override {
    RigTest::SetUp();
    if (IsSkipped()) return;
    rig_ = TestRig::make(GetParam(), kOptions);
    rig_->runner.reset();
    recorder_ = std::make_unique<StepRecorder>(*rig_->backend.ops);
    rig_->runner =
        ModelRunner::make(rig_->model, *rig_->backend.device, *recorder_, kOptions).value();
    for (SequenceState& sequence : sequences_) {
      sequence = rig_->open(kContext + 4);
      rig_->prefill(sequence, tokens(kContext, 1));
    }
  }

  // A decode step of four rows of the first sequence and one of the second, nothing before it on
  // their tapes, so that it may run again on the same state.
  RecordedStep record() {
    const std::vector<int32_t> first = tokens(4, 2), second = tokens(1, 3);
    const std::vector<SequenceRows> rows = {
        {.sequence = &sequences_[0], .tokens = first, .logits = LogitsWanted::kAll},
        {.sequence = &sequences_[1], .tokens = second, .logits = LogitsWanted::kAll}};
    RecordedStep step;
    rig_->runner->set_replay(false);
    recorder_->record(&step);
    rig_->runner->decode(rows);
    recorder_->record(nullptr);
    return step;
  }
  void forget_logits() {
    const TensorView& logits = rig_->runner->logits();
    rig_->backend.device->zero(logits.data(), logits.bytes());
  }
  Ops& ops() { return *rig_->backend.ops; }

  std::unique_ptr<TestRig> rig_;
  std::unique_ptr<StepRecorder> recorder_;
  SequenceState sequences_[2];
};
INSTANTIATE_TEST_SUITE_P(Backends, RecordedSteps, testing::ValuesIn(test::rig_cases()),
                         test::kRigName);

TEST_P(RecordedSteps, RunAgainLeaveTheSameBits) {
  const RecordedStep step = record();
  const test::Rows want = rig_->logits();
  forget_logits();
  for (const OpCall& call : step.calls) call(ops());
  EXPECT_EQ(rig_->logits(), want) << "blocks whole";
  forget_logits();
  for (const StageCall& call : step.stages) call.run(ops());
  EXPECT_EQ(rig_->logits(), want) << "stage by stage";
}

TEST_P(RecordedSteps, LeaveOutWhatIsNotAsked) {
  const RecordedStep step = record();
  const test::Rows want = rig_->logits();
  for (const char* const left_out : {"route", "mlp_up", "delta_rule", "attention"}) {
    bool any = false;
    for (const StageCall& call : step.stages)
      if (call.stage != left_out)
        call.run(ops());
      else
        any = true;
    EXPECT_EQ(rig_->logits() == want, !any) << left_out;
  }
}

TEST_P(RecordedSteps, NeedTheBytesOfAStep) {
  const RecordedStep step = record();
  Qwen35Model& model = rig_->model;
  std::map<std::string, WeightSpec> specs;
  for (const MatrixParameter& p : list_parameters(model.config, false, model.weights).matrices)
    specs[p.module + p.projection] = spec_of(*p.target);
  const Footprint sizes =
      footprint(model.config, false,
                [&](const MatrixParameter& p) {
                  return p.target == nullptr || !specs.contains(p.module + p.projection)
                             ? WeightSpec{}
                             : specs[p.module + p.projection];
                },
                {.activations = ops().activation_dtype(),
                 .kv = ops().kv_format() == KvFormat::kF32 ? DType::kF32 : DType::kBF16});
  const double experts = model.config.is_moe() ? 3 : 0;
  double bytes = 0;
  for (const StageCall& call : step.stages)
    bytes += call.bytes({.distinct_experts = experts, .context = kContext});
  const StepBytes want =
      decode_bytes(model.config, sizes,
                   {.sequences = 2, .rows = 5, .distinct_experts = experts, .context = kContext});
  EXPECT_NEAR(bytes, want.total(), 1e-6 * want.total());
}

const std::set<std::string> kAlone = {"embed",      "mlp_up", "mlp_down",
                                      "final_norm", "head",   "sampling"};

TEST_P(RecordedSteps, AreTimedStageByStage) {
  const RecordedStep step = record();
  Device& device = *rig_->backend.device;
  OpTimer timer = OpTimer::make(device).value();
  const StepProfile profile = profile_step(step, ops(), device, timer, kContext);
  int64_t calls = 0;
  double bytes = 0;
  for (const StageTime& stage : profile.stages) {
    EXPECT_GT(stage.seconds, 0) << stage.stage;
    calls += stage.calls;
    bytes += static_cast<double>(stage.calls) * stage.bytes;
  }
  EXPECT_EQ(calls, static_cast<int64_t>(step.stages.size()));
  EXPECT_EQ(profile.bytes(), bytes);
  // What stands in no block: the rest of the step.
  for (const StageTime& block : profile.blocks) {
    EXPECT_GT(block.seconds, 0) << block.stage;
    bytes -= static_cast<double>(block.calls) * block.bytes;
  }
  for (const StageTime& stage : profile.stages)
    if (kAlone.contains(stage.stage)) bytes -= static_cast<double>(stage.calls) * stage.bytes;
  EXPECT_NEAR(bytes, 0, 1e-6 * profile.bytes());
  EXPECT_GT(profile.replay_seconds, 0);
  if (GetParam().config.is_moe()) {
    EXPECT_GE(profile.distinct_experts, static_cast<double>(GetParam().config.experts_per_token));
    EXPECT_LE(profile.distinct_experts, static_cast<double>(GetParam().config.experts));
  }
  // The step after it is as good as any.
  for (SequenceState& sequence : sequences_) rig_->runner->accept(sequence, 0);
  for (const std::vector<float>& row : rig_->decode(sequences_[0], tokens(2, 4)))
    for (const float logit : row) ASSERT_TRUE(std::isfinite(logit));
}

}  // namespace
}  // namespace pewter
