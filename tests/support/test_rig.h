// TestRig: a backend, a random model and a runner around them, with the few calls that engine tests
// are made of. Tests are instantiated over rig_cases(): every backend this program was built with
// times the kinds of model.
#pragma once

#include <gtest/gtest.h>

#include <ostream>

#include "backend/factory.h"
#include "engine/model_runner.h"
#include "support/random_model.h"

namespace pewter::test {

struct RigCase {
  std::string name;
  std::string device;  // of make_backend, or cpu-replayed (replaying_backend.h)
  ModelConfig config;
  RandomFormats formats;
  uint64_t seed = 1;
  int threads = 2;

  // Whether results of the prefill path equal those of the decode path to the last bit.
  bool is_exact() const { return device == "cpu-reference"; }
};

std::vector<RigCase> rig_cases();
std::vector<RigCase> small_rig_cases();  // of them, the bf16 models: for what formats do not touch
Backend make_rig_backend(const RigCase& rig_case);
// Names a case in INSTANTIATE_TEST_SUITE_P.
inline constexpr auto kRigName = [](const auto& tested) { return tested.param.name; };
void PrintTo(const RigCase& rig_case, std::ostream* out);  // found by GoogleTest

// A suite over rig cases. Those of a device that this machine lacks are skipped.
class RigTest : public testing::TestWithParam<RigCase> {
 protected:
  void SetUp() override;
  std::vector<int32_t> tokens(int64_t count, uint64_t seed) const {
    return random_tokens(GetParam().config, count, seed);
  }
};

// Logits of some rows.
using Rows = std::vector<std::vector<float>>;

struct TestRig {
  Backend backend;
  Qwen35Model model;
  std::unique_ptr<ModelRunner> runner;

  // Never null; a failure to make one is a CHECK.
  static std::unique_ptr<TestRig> make(const RigCase& rig_case, const RunnerOptions& options);

  SequenceState open(int64_t positions) { return runner->open(positions).value(); }
  // Prefills in chunks of the runner's size; the last row's logits.
  std::vector<float> prefill(SequenceState& sequence, std::span<const int32_t> tokens);
  // One decode step, nothing accepted; logits of all rows.
  Rows decode(std::span<const SequenceRows> rows);
  Rows decode(SequenceState& sequence, std::span<const int32_t> tokens);
  // A decode step of one row for each token, all accepted; their logits.
  Rows steps(SequenceState& sequence, std::span<const int32_t> tokens);
  // The folded slot as bytes.
  std::vector<std::byte> export_slot(SequenceState& sequence);
  // A copy in this or another runner: its pages layer by layer, its (folded) slot as bytes.
  SequenceState copy(SequenceState& sequence, TestRig& to, int64_t positions);
  // The last step's logits.
  Rows logits() const;
};

// Largest difference of two rows over the root mean square of the first.
double relative_difference(const std::vector<float>& a, const std::vector<float>& b);

}  // namespace pewter::test
