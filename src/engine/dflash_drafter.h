// DflashDrafter: a DFlash model drafts. After each step the tapped layers of what was committed
// give it keys and values; then the last token and a mask for each guess go through it at once. Its
// keys and values lie in pages of its own cache, numbered as the target's; those of guesses are
// overwritten when their positions are committed. What is committed of sequences that get no
// guesses waits (waiting_rows.h).
#pragma once

#include "engine/drafter.h"
#include "engine/waiting_rows.h"
#include "model/dflash/forward.h"

namespace pewter {

class DflashDrafter final : public Drafter {
 public:
  // What it takes beside the weights, for a runner of these options.
  static RunnerMemory memory(const DflashConfig& config, const Device& device, const Ops& ops,
                             const RunnerOptions& options);
  // The runner's model keeps the drafter's taps; runner, device and ops outlive it. Errors:
  // kNotFound without a model; kInvalidArgument when it belongs to another target;
  // kResourceExhausted.
  static Result<std::unique_ptr<Drafter>> make(std::shared_ptr<const DflashModel> model,
                                               ModelRunner& runner, Device& device, Ops& ops);
  ~DflashDrafter() override;

  Status begin(const SequenceState& state, int64_t positions) override;
  void read(SequenceState& state, std::span<const int32_t> prompt, int64_t begin) override;
  bool start(std::span<const DraftSequence> sequences) override;

  // Of the last draft: [rows, H] after the last norm, for every row of its blocks.
  TensorView hidden(int64_t rows) const { return act_.hidden.first(rows); }
  // Where the context's taps are written, [rows, H] act each: for tests that bring their own.
  const std::vector<TensorView>& taps() const { return act_.taps; }
  // Keys and values of context rows whose taps lie there.
  void fill(Phase phase, std::span<const SequenceRows> rows, std::span<const int64_t> positions);
  // Drafts without a context step before.
  void draft_blocks(std::span<const DraftSequence> sequences);

 private:
  DflashDrafter(std::shared_ptr<const DflashModel> model, ModelRunner& runner, Device& device,
                Ops& ops)
      : model_(std::move(model)), runner_(runner), device_(device), ops_(ops) {}
  Status allocate();
  // Copies the taps of rows of the target's last step to the next context rows.
  void take_taps(int64_t from, int64_t rows, int64_t to);
  void put_off(const DraftSequence& sequence);
  // Gathers what was committed of a sequence, and what waited, for follow_all, which reads it.
  void follow(const DraftSequence& sequence);
  void follow_all();
  void fill_batches(std::span<const DraftSequence> sequences);
  // Whether a window leaves out anything that a row of the blocks could see.
  bool slides_over(std::span<const DraftSequence> sequences) const;

  std::shared_ptr<const DflashModel> model_;
  ModelRunner& runner_;
  Device& device_;
  Ops& ops_;
  KvCache kv_;
  Buffer memory_;
  DflashActivations act_;
  StepBatch context_, block_, whole_block_;
  std::optional<GreedyChooser> chooser_;
  std::optional<WaitingRows> waiting_;
  int64_t context_rows_ = 0;  // gathered
  std::vector<int32_t> block_tokens_;
  std::vector<SequenceRows> rows_;
  std::vector<int64_t> positions_;
};

}  // namespace pewter
