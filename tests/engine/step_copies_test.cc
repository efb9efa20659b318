// What a decode step sends to the device and waits for: its batch, and what the sampler has not
// sent already; the choices.

#include "engine/step_sampler.h"
#include "support/counting_device.h"
#include "support/test_rig.h"

namespace pewter {
namespace {

using test::CountingDevice;
using test::TestRig;

constexpr RunnerOptions kOptions{.chunk_rows = 64, .max_sequences = 1, .decode_rows = 2};

class StepCopies : public test::RigTest {
 protected:
  struct Figures {
    std::string events;
    int64_t copies = 0;
    bool operator==(const Figures&) const = default;
  };
  // Of each of some steps of two rows, and what they choose.
  std::vector<Figures> figures(const SamplingParams& sampling) {
    const auto rig = TestRig::make(GetParam(), kOptions);
    CountingDevice device(*rig->backend.device);
    rig->runner.reset();
    rig->runner = ModelRunner::make(rig->model, device, *rig->backend.ops, kOptions).value();
    StepSampler sampler =
        StepSampler::make(device, *rig->backend.ops,
                          {.rows = 2, .vocab_limit = GetParam().config.vocab_size})
            .value();
    const std::vector<int32_t> prompt = tokens(20, 1), rows = tokens(2, 2);
    Sampler chooser({.prompt = prompt, .sampling = sampling}, {});
    SequenceState state = rig->open(64);
    rig->prefill(state, prompt);
    std::vector<Figures> all;
    for (int i = 0; i < 4; ++i) {
      device.take_events();
      device.take_copies();
      const SequenceRows step{.sequence = &state, .tokens = rows, .logits = LogitsWanted::kAll};
      rig->runner->decode(std::span(&step, 1));
      const StepSampler::Rows wanted{.sampler = &chooser, .drafts = std::span(rows).last(1)};
      const auto choices = sampler.sample(rig->runner->logits(), std::span(&wanted, 1));
      chooser.push(choices[0].token);
      rig->runner->accept(state, 1);
      all.push_back({device.take_events(), device.take_copies()});
    }
    rig->runner->close(state);
    rig->runner.reset();
    return all;
  }
};
INSTANTIATE_TEST_SUITE_P(Backends, StepCopies, testing::ValuesIn(test::small_rig_cases()),
                         test::kRigName);

TEST_P(StepCopies, GreedyStepsSendTheirBatch) {
  const Figures first{"sw", 2}, others{"sw", 1};
  EXPECT_EQ(figures({.temperature = 0}), (std::vector<Figures>{first, others, others, others}));
}

// A backend may have other kernels for short contexts, so that their recordings are others.
TEST_P(StepCopies, ShortContextsHaveKeysOfTheirOwn) {
  RunnerOptions options = kOptions;
  options.cache_tokens = kShortContext + kPageTokens;
  const auto rig = TestRig::make(GetParam(), options);
  CountingDevice device(*rig->backend.device);
  rig->runner.reset();
  rig->runner = ModelRunner::make(rig->model, device, *rig->backend.ops, options).value();
  SequenceState state = rig->open(kShortContext + 8);
  state.length = kShortContext - 2;  // of zeros
  rig->steps(state, tokens(4, 1));
  const std::vector<uint64_t>& keys = device.keys();
  ASSERT_EQ(keys.size(), 4u);
  EXPECT_EQ(keys[0], keys[1]);
  EXPECT_NE(keys[1], keys[2]);
  EXPECT_EQ(keys[2], keys[3]);
  rig->runner->close(state);
  rig->runner.reset();
}

TEST_P(StepCopies, DrawsAreNumbered) {
  const Figures each{"sw", 2};
  EXPECT_EQ(figures({.temperature = 1}), std::vector<Figures>(4, each));
}

}  // namespace
}  // namespace pewter
