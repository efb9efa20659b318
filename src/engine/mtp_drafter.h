// MtpDrafter: the checkpoint's multi-token-prediction layer drafts. It reads what the target has
// committed (the hidden of a position and the token after it), which gives the first guess, and
// then its own hidden and guess again and again, without the host, which waits for all guesses at
// once. Keys and values of guesses lie where the next
// reading of committed rows overwrites them. What is committed of sequences that get no guesses
// waits (waiting_rows.h).
#pragma once

#include "engine/drafter.h"
#include "engine/waiting_rows.h"

namespace pewter {

class MtpDrafter final : public Drafter {
 public:
  // runner, device and ops outlive it. Errors: kNotFound when the model has no MTP layer;
  // kResourceExhausted.
  static Result<std::unique_ptr<Drafter>> make(ModelRunner& runner, Device& device, Ops& ops);

  Status begin(const SequenceState& state, int64_t positions) override;
  void read(SequenceState& state, std::span<const int32_t> prompt, int64_t begin) override;
  bool start(std::span<const DraftSequence> sequences) override;
  void finish(bool all) override;
  ChosenTokens choices() const override { return chooser_->chosen(); }

 private:
  MtpDrafter(ModelRunner& runner, Ops& ops) : runner_(runner), ops_(ops) {}
  // What the step before committed of a sequence.
  static MtpRows committed_rows(const DraftSequence& sequence);
  MtpRows unread_rows(const DraftSequence& sequence, int64_t spared) const;
  // Whether its committed rows but the last are part of the first step that drafts.
  bool reads_at_once(const DraftSequence& sequence) const;
  // Keys and values alone, of committed rows that nothing is drafted from; of sequences that are
  // not drafted for, once many wait.
  void keep_up(std::span<const DraftSequence> sequences);
  void put_off(const DraftSequence& sequence);
  // Gathers rows in rows_ for follow_all, which reads them; so many at a time as a step may have.
  void follow(const MtpRows& rows);
  void follow_all();
  // Of those drafted for, how many get a guess of this number, from 1.
  int64_t guessing(int64_t number) const;
  // Appends what stands for their guesses: every first one, every second one and so on.
  void hand_out() const;

  ModelRunner& runner_;
  Ops& ops_;
  std::optional<GreedyChooser> chooser_;
  std::optional<WaitingRows> waiting_;
  std::vector<MtpRows> rows_;
  std::vector<const DraftSequence*> drafting_;  // by falling number of guesses, until finish()
};

}  // namespace pewter
