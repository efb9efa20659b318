// MtpDrafter: the checkpoint's multi-token-prediction layer drafts. It reads what the target has
// committed (the hidden of a position and the token after it), which gives the first guess, and
// then its own hidden and guess again and again. Keys and values of guesses lie where the next
// reading of committed rows overwrites them.
#pragma once

#include "engine/drafter.h"
#include "engine/step_sampler.h"

namespace pewter {

class MtpDrafter final : public Drafter {
 public:
  // runner, device and ops outlive it. Errors: kNotFound when the model has no MTP layer;
  // kResourceExhausted.
  static Result<std::unique_ptr<Drafter>> make(ModelRunner& runner, Device& device, Ops& ops);

  Status begin(const SequenceState&, int64_t) override { return {}; }
  void read(SequenceState& state, std::span<const int32_t> prompt, int64_t begin) override;
  void draft(std::span<const DraftSequence> sequences) override;

 private:
  MtpDrafter(ModelRunner& runner, StepSampler sampler);
  // What the step before committed of a sequence.
  static MtpRows committed_rows(const DraftSequence& sequence);
  // Keys and values alone, of sequences that get no drafts this time.
  void keep_up(std::span<const DraftSequence> sequences);
  // Runs rows_, which gives each of their sequences its draft number `drafted`, from 1. What is
  // left in rows_ is the next step's.
  void step(int64_t drafted);

  ModelRunner& runner_;
  StepSampler sampler_;
  Sampler greedy_;
  std::vector<MtpRows> rows_;
  std::vector<const DraftSequence*> drafting_;  // of each of rows_
  std::vector<StepSampler::Rows> greedy_rows_;
};

}  // namespace pewter
