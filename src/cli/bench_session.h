// BenchSession: sequences of random tokens on a bench's model, run step by step.
#pragma once

#include "base/clock.h"
#include "base/rng.h"
#include "cli/bench_model.h"
#include "cli/expert_probe.h"
#include "cli/overlapped_tokens.h"
#include "cli/step_profile.h"
#include "engine/drafter.h"
#include "engine/step_sampler.h"
#include "engine/suffix_index.h"

namespace pewter {

class BenchSession {
 public:
  // All outlive it. Errors: those of ModelRunner::make and of the device.
  static Result<std::unique_ptr<BenchSession>> make(const BenchOptions& options,
                                                    const BenchHooks& hooks, BenchModel& model);

  // Tokens a second of one repeat: a prompt, or so many decode steps behind the depth.
  double repeat(int64_t tokens);
  // Of a step of the last repeat, what went to drafting.
  double draft_seconds() const { return draft_seconds_; }
  // Steps of which every second one is accepted whole and every other one in part, without drafts.
  RollbackCost rollback(int64_t steps);
  // Where a decode step at the depth spends its time.
  Result<StepProfile> profile(const StageFilter& wanted = {});

  // Counting looks at every layer's choice, which a replayed step does not stop for.
  void count_experts(bool on);
  double distinct_experts() const { return probe_.distinct_experts(); }
  // Whether every row had finite logits so far.
  bool finite() const { return finite_; }
  int64_t step_rows() const;

 private:
  BenchSession(const BenchOptions& options, const BenchHooks& hooks, BenchModel& model);
  Status prepare();
  void fill_to_depth();
  void rewind();
  std::span<const int32_t> random_tokens(int64_t count);
  Status overlap_tokens();
  void prefill(SequenceState& sequence, int64_t count, LogitsWanted logits);
  void step();
  // Enqueued, without accepting anything and without hearing what was chosen.
  void start_rows();
  void run_rows();
  // Whether a step is enqueued before the choices of the one before it are heard, as the engine
  // does where nothing is drafted.
  bool goes_ahead() const;
  void accept(int64_t rows);
  // Rows of this step that count: forced_tokens on average.
  int64_t rows_that_count();
  // Whether guesses are on their way: they are heard when the next step is enqueued, as in the
  // engine.
  bool draft(int64_t counted);
  void look_up(int64_t counted);
  void hear_guesses();
  void hear_choices();

  const BenchOptions& options_;
  const BenchHooks& hooks_;
  BenchModel& made_;
  StepRecorder recorder_;
  ExpertProbe probe_;
  Rng rng_{7};
  // Nobody looks at the tokens, but choosing them is part of a step.
  std::unique_ptr<StepSampler> sampler_;
  Sampler greedy_;
  std::vector<StepSampler::Rows> choosers_;
  bool finite_ = true, counts_experts_ = false;
  bool ahead_ = false;  // the last step's choices are not heard yet
  double credit_ = 0;   // of rows_that_count
  double draft_seconds_ = 0;
  Stopwatch draft_watch_;
  bool guessing_ = false;
  std::unique_ptr<Drafter> drafter_;
  // Of kSuffix, a text that repeats itself.
  SuffixIndex index_;
  std::vector<int32_t> text_;
  std::optional<OverlappedTokens> overlapped_;
  std::vector<std::vector<int32_t>> drafts_;  // of each sequence
  std::vector<DraftSequence> draft_sequences_;
  std::unique_ptr<ModelRunner> runner_;
  std::vector<SequenceState> sequences_;
  std::vector<int32_t> tokens_;
  std::vector<SequenceRows> rows_;
};

}  // namespace pewter
