// Drafter: guesses the tokens a sequence says next, for the target model to verify in one step. A
// wrong guess costs time and never changes what is said. The engine calls it on its own thread.
//
// Read next: mtp_drafter.h (the checkpoint's own layer), suffix_index.h (guesses without a model),
// speculator.h (who guesses, and how much).
#pragma once

#include <memory>
#include <optional>
#include <span>

#include "engine/draft_figures.h"
#include "engine/model_runner.h"
#include "model/dflash/model.h"

namespace pewter {

// A sequence right after a step whose accepted rows are committed and whose token is chosen.
struct DraftSequence {
  SequenceState* state = nullptr;
  std::span<const int32_t> tokens;  // prompt and output; state holds all but the last
  // The committed rows of that step: the state's last positions, in runner.hidden().
  int64_t first_row = 0, rows = 0;
  // Drafts that can be used; 0: none for this step, but for a later one perhaps.
  int64_t most = 0;
  std::vector<int32_t>* drafts = nullptr;  // its own, gets at most so many guesses appended
};

class Drafter {
 public:
  virtual ~Drafter() = default;

  // A sequence of at most `positions` tokens has been opened in this slot. Error:
  // kResourceExhausted.
  virtual Status begin(const SequenceState& state, int64_t positions) = 0;
  // A chunk of its prompt has been read: positions [begin, state.length), in runner.hidden().
  virtual void read(SequenceState& state, std::span<const int32_t> prompt, int64_t begin) = 0;
  // Right after a step, before another one; read() of the same chunk comes first. Every sequence
  // that may be drafted for later is among them after each of its steps.
  void draft(std::span<const DraftSequence> sequences) {
    start(sequences);
    finish(/*all=*/false);
  }
  // The two halves of it. Where guesses are choices on the device, the first half only enqueues
  // them and appends -1 - i for choice i of choices(): a step of such tokens may be enqueued
  // meanwhile. The second half waits, and puts guesses in their place: up to the first that is
  // nothing, or `all` that such a step runs. True when there is something to wait for; otherwise
  // the first half was all of it.
  virtual bool start(std::span<const DraftSequence> sequences) = 0;
  virtual void finish(bool all) { (void)all; }
  virtual ChosenTokens choices() const { return {}; }
};

enum class DraftMethod : uint8_t {
  kNone,
  kAuto,    // the engine chooses: kDflash when there is one, kMtp when the model has the layer
  kSuffix,  // what followed the same words before
  kMtp,     // the checkpoint's multi-token-prediction layer
  kDflash,  // a block drafter from a checkpoint of its own
};

// How many tokens are drafted for a sequence in a step.
enum class DraftLength : uint8_t {
  kFixed,   // as many as allowed
  kByCost,  // as many as pay, by what steps have taken and how often guesses were right
};

struct DraftOptions {
  DraftMethod method = DraftMethod::kNone;
  int64_t tokens = 0;  // most for a sequence in a step, at most kMaxDrafts; 0: none
  DraftLength depth = DraftLength::kFixed;
  int64_t shortest_match = 3;  // of kSuffix: tokens that must repeat before a guess is made
  // Of methods with a model: where kLongMatch tokens repeat, what followed them may be the guess.
  // Set when kAuto has chosen such a method.
  bool look_up = false;
  bool enabled() const { return method != DraftMethod::kNone && tokens > 0; }
  // Rows a sequence has in a decode step.
  int64_t decode_rows() const { return enabled() ? 1 + tokens : 1; }
  // Error: kInvalidArgument naming the field as vLLM spells it, its value and its range.
  Status validate() const;
};

inline constexpr int64_t kLongMatch = 8;

// The drafter that runs a model, for valid options without kAuto; null when drafting is off or
// guesses are only looked up. runner, device and ops outlive it. Errors: kNotFound naming what the
// model lacks, kResourceExhausted. dflash: the model of kDflash, null otherwise.
Result<std::unique_ptr<Drafter>> make_drafter(const DraftOptions& options,
                                              std::shared_ptr<const DflashModel> dflash,
                                              ModelRunner& runner, Device& device, Ops& ops);

}  // namespace pewter
