// ModelRunner knows how to run a step: it fills the batch, calls the forward pass and commits what
// was accepted. What to run is the caller's decision. It owns the state pool and the activations of
// one model on one backend.
#pragma once

#include <functional>
#include <memory>

#include "backend/ops.h"
#include "engine/greedy_chooser.h"
#include "engine/step_batch.h"
#include "model/qwen35/forward.h"

namespace pewter {

// Sequences whose guesses of the MTP layer may be one recording, of which there is one for each
// number of them and of guesses. More of them keep the GPU busy from one recording to the next.
inline constexpr int64_t kMostChained = 8;

struct RunnerOptions {
  int64_t chunk_rows = 512;     // rows of a prefill chunk; a multiple of kDeltaChunk
  int64_t max_sequences = 1;    // sequences in one decode step, and slots
  int64_t decode_rows = 1;      // rows a sequence may have in a decode step, at most kMaxDecodeRows
  int64_t cache_tokens = 4096;  // positions the KV cache holds, all sequences together
  int64_t logits_rows = 0;      // most rows with logits in a step; 0: enough for decode steps
  OpsLimits beside = {};        // of what else runs on the same ops: a drafter's model
};

// What a step of the MTP layer does for one sequence. Row i stands at position + i, and its token
// is the one after that position. The first rows start from `earlier`, those behind them from the
// rows of the last step's hidden() from hidden_row on.
struct MtpRows {
  SequenceState* sequence = nullptr;
  std::span<const int32_t> tokens;
  int64_t position = 0, hidden_row = 0;
  TensorView earlier = {};  // [rows, H] act, or undefined
};

// What a runner takes beside the weights.
struct RunnerMemory {
  int64_t kv_bytes = 0, state_bytes = 0;
  int64_t scratch_bytes = 0;   // activations, scratch of the ops, the batch
  int64_t recorded_bytes = 0;  // steps recorded for replay
  RunnerMemory& operator+=(const RunnerMemory& more) {
    kv_bytes += more.kv_bytes;
    state_bytes += more.state_bytes;
    scratch_bytes += more.scratch_bytes;
    recorded_bytes += more.recorded_bytes;
    return *this;
  }
  int64_t total() const { return kv_bytes + state_bytes + scratch_bytes + recorded_bytes; }
};

class ModelRunner {
 public:
  // Needs the model's config alone, not its weights.
  static RunnerMemory memory(const Qwen35Model& model, const Device& device, const Ops& ops,
                             const RunnerOptions& options);
  // model, device and ops outlive the runner. Errors: kInvalidArgument (options),
  // kResourceExhausted.
  static Result<std::unique_ptr<ModelRunner>> make(const Qwen35Model& model, Device& device,
                                                   Ops& ops, const RunnerOptions& options);

  ~ModelRunner();
  // Decode steps may be recorded and replayed (on by default); off runs each as it comes.
  void set_replay(bool on) { replay_ = on; }

  // An empty sequence with pages for `positions`. Error: kResourceExhausted when pages or slots are
  // missing.
  Result<SequenceState> open(int64_t positions);
  void close(SequenceState& sequence);

  // One prefill chunk of one sequence (at most chunk_rows rows): certain tokens, committed whole.
  void prefill(const SequenceRows& rows);
  // After a chunk, before anything else: logits() of its rows [begin, end), in place of what was
  // asked for, at most most_logits() of them.
  void chunk_logits(int64_t begin, int64_t end);
  int64_t most_logits() const { return store_.all.logits.dim(0); }
  // Where decode steps find tokens that stand for choices: -1 - i is choice i. Before the first of
  // them.
  void set_choices(const ChosenTokens& choices) { chosen_ = choices; }
  // A decode step, each sequence at most once. Nothing is committed until accept().
  void decode(std::span<const SequenceRows> rows);
  // Commits the first n rows of the sequence's last decode step and rejects the others; a step that
  // is followed by another one unanswered is rejected whole.
  void accept(SequenceState& sequence, int64_t n);
  // The MTP layer, for models that have it; its keys and values lie in the sequence's pages.
  // Part of a prompt's chunk, without logits; hidden() and what it is read from stay.
  void fill_mtp(const MtpRows& rows);
  // The same for what decode steps have committed, each sequence at most once.
  void follow_mtp(std::span<const MtpRows> rows);
  // A chain of steps that are recorded as one. The first is of these rows. From the first
  // `sequences`, one row each, it chooses a first guess; others, of which it makes keys and values
  // alone, may be what one of these sequences has committed before. Every further step starts a
  // position on from the layer's own hidden and what was chosen, which nobody waits for. Guess
  // number n of sequence i, from 0, is the chooser's choice n * sequences + i. More than one guess
  // for at most kMostChained sequences.
  struct Guesses {
    int64_t sequences = 1, each = 1;
  };
  void draft_mtp(std::span<const MtpRows> rows, const Guesses& guesses, GreedyChooser& chooser);
  // Right behind them a step more of the first `sequences`, whose choices are number `choices` and
  // on.
  void draft_mtp_on(int64_t sequences, int64_t choices, GreedyChooser& chooser);
  // Brings the slot's state up to the committed length, before it is exported.
  void fold(SequenceState& sequence);

  // Of the last step: logits [rows with logits, V] f32 in batch order; hidden [rows, H] after the
  // final norm.
  const TensorView& logits() const { return act_.logits; }
  const TensorView& hidden() const { return act_.hidden; }
  // Memory of logits for drafters: the last step's are gone when it is written.
  TensorView logits_memory(int64_t rows) const { return store_.all.logits.first(rows); }
  // Of the target's last step, whatever the MTP layer has run since: it leaves them until it
  // drafts.
  TensorView hidden_rows(int64_t begin, int64_t rows) const {
    return store_.all.hidden.slice(0, begin, begin + rows);
  }
  // [rows, H] f32, the residual after model().taps[i], of the target's last step.
  TensorView tap(size_t i, int64_t row_begin, int64_t rows) const {
    return store_.all.taps[i].slice(0, row_begin, row_begin + rows);
  }
  const Activations& activations() const { return act_; }
  StatePool& pool() { return pool_; }
  const Qwen35Model& model() const { return model_; }
  const RunnerOptions& options() const { return options_; }
  bool has_mtp() const { return model_.weights.mtp.has_value(); }
  // Fills the batch for these rows without running it, for tests that run single layers.
  const Batch& make_batch(Phase phase, std::span<const SequenceRows> rows);
  Activations& mutable_activations() { return act_; }

 private:
  ModelRunner(const Qwen35Model& model, Device& device, Ops& ops)
      : model_(model), device_(device), ops_(ops) {}
  Status allocate();
  const Batch& fill_batch(Phase phase, std::span<const SequenceRows> rows,
                          std::span<const int64_t> positions);
  void set_mtp_rows(std::span<const MtpRows> rows, LogitsWanted logits);
  const Batch& make_mtp_batch(Phase phase, std::span<const MtpRows> rows);  // without logits
  // Whether what waited is among the rows' hidden, and has to be brought together with the rest.
  static bool has_earlier(std::span<const MtpRows> rows);
  void gather_hidden(std::span<const MtpRows> rows);
  // The tensors of a step that drafts, and the step.
  void narrow_to_draft(const Batch& batch);
  void run_draft(const Batch& batch, const Batch& drafting, const GreedyChooser& chooser);
  // Recordings have the addresses of one chooser.
  void record_with(const GreedyChooser& chooser);
  enum class StepKind : uint8_t { kTarget, kDraft, kDraftOn, kFollow, kFollowGathered };
  // Runs a decode step, or replays one that enqueued the same: of such a first batch, and of as
  // many steps.
  void run_step(StepKind kind, const Batch& batch, int64_t steps,
                const std::function<void()>& step);

  const Qwen35Model& model_;
  Device& device_;
  Ops& ops_;
  RunnerOptions options_;
  bool replay_ = true;
  ChosenTokens chosen_;            // which decode steps may go on from
  uint64_t recorded_chooser_ = 0;  // whose choices recorded drafts make; 0: there are none
  StatePool pool_;
  ActivationStore store_;
  Activations act_;  // store_'s tensors cut to the current step
  StepBatch batch_;
  Batch
      drafting_;  // of a chain's first step the rows that are drafted from; recordings refer to it
  std::vector<SequenceRows> mtp_rows_;
  std::vector<int64_t> mtp_positions_;
  std::vector<int32_t> mtp_choices_;  // tokens that stand for choices
};

}  // namespace pewter
