// Speculator: everything about drafting that the engine needs to know: it looks guesses up, has a
// model make them, and decides by what both have cost and gained how many each sequence gets
// (draft_depth.h). One per engine, on its thread.
#pragma once

#include <functional>
#include <memory>

#include "engine/draft_depth.h"
#include "engine/drafter.h"
#include "engine/suffix_index.h"

namespace pewter {

class Speculator {
 public:
  struct Options {
    DraftOptions draft;              // enabled, and never kAuto
    int64_t max_sequences = 1;       // and as many slots
    std::shared_ptr<Drafter> model;  // of method kSuffix null
    std::function<double()> clock;   // seconds since some moment
  };
  explicit Speculator(const Options& options);

  // As Drafter's.
  Status begin(const SequenceState& state, int64_t positions);
  void read(SequenceState& state, std::span<const int32_t> prompt, int64_t begin);
  // Appends guesses to each sequence's drafts, none where none would pay, in two halves as
  // Drafter's. `others`: sequences that will be in the step besides.
  bool start(std::span<const DraftSequence> sequences, int64_t others);
  void finish(bool all);
  ChosenTokens choices() const { return model_ ? model_->choices() : ChosenTokens(); }

  // The drafts of a sequence were verified.
  void judged(const SequenceState& state, int64_t drafted, int64_t accepted);
  // A decode step of so many sequences, `drafts` guesses among their rows.
  void stepped(int64_t sequences, int64_t drafts, double seconds);
  double now() const { return clock_(); }

 private:
  void look_up(const DraftSequence& sequence, DraftCandidate& candidate);
  // Has the model draft what was chosen of it, and keep up with the other sequences.
  bool ask_model(std::span<const DraftSequence> sequences);
  struct Slot {
    SuffixIndex index;
    std::vector<int32_t> found;
    DraftSource source = DraftSource::kModel;  // of its last drafts
  };
  Slot& slot(const SequenceState& state) { return slots_[static_cast<size_t>(state.slot)]; }

  DraftOptions options_;
  std::shared_ptr<Drafter> model_;
  std::function<double()> clock_;
  DraftDepth depth_;
  int64_t shortest_match_ = 0;  // 0: nothing is looked up
  std::vector<Slot> slots_;
  std::vector<DraftCandidate> candidates_;
  std::vector<DraftSequence> asked_;
  // Between start() and finish():
  double begin_ = 0;
  int64_t depth_asked_ = 0;  // the most guesses that the model makes of a sequence
};

}  // namespace pewter
