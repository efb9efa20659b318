// DraftDepth: how many tokens to guess for each sequence of the next step. It weighs what steps
// have taken (draft_costs.h) against how often guesses were right: the lengths that yield the most
// tokens a second, which may be none. A sequence that guesses nothing tries again once the time
// that plain steps have saved it pays for the attempt. It decides the speed, never the text, and
// knows neither clocks nor models: seconds are told to it.
//
// Source of the law: expected tokens of a step E(n) = Σ_i Π_{j ≤ i} α_j over its seconds t(n).
#pragma once

#include <array>
#include <span>

#include "engine/draft_costs.h"
#include "engine/draft_figures.h"

namespace pewter {

// Who guesses.
enum class DraftSource : uint8_t {
  kLookup,  // what followed the same words before
  kModel,   // a drafter that runs a model
};
inline constexpr size_t kDraftSources = 2;

// How often guesses at each place of a draft were right when all before them were; old ones fade,
// by half in 32. Where little is known of a place, it is as the one before it, and as it was for
// others.
class Acceptance {
 public:
  // Share of first guesses that will be right, for all anybody knows.
  explicit Acceptance(double first = 0.7) {
    expected_.fill(-1);
    expected_[0] = static_cast<float>(first);
  }
  void add(int64_t drafted, int64_t accepted);
  // What was seen counts half: a sequence that was left alone may have changed.
  void doubt();
  // Of place i, from 0.
  double rate(int64_t i) const;
  // Nothing was seen yet but what others saw.
  void restart(const Acceptance& others);

 private:
  std::array<float, kMaxDrafts> expected_{};  // before anything is seen; below 0: nobody knows
  std::array<float, kMaxDrafts> tried_{}, right_{};
};

// A sequence of the next step.
struct DraftCandidate {
  int64_t slot = 0;
  int64_t most = 0;   // guesses a model may be asked for
  int64_t found = 0;  // guesses at hand that were looked up
  // The choice; at most `found` or `most`.
  DraftSource source = DraftSource::kModel;
  int64_t drafts = 0;
};

class DraftDepth {
 public:
  struct Options {
    int64_t max_sequences = 1;
    // Always as many as possible, looked up ones first.
    bool fixed = false;
  };
  explicit DraftDepth(const Options& options);

  // A new sequence in this slot.
  void begin(int64_t slot);
  // For sequences of a step that has `others` besides, for which it is settled.
  void choose(std::span<DraftCandidate> candidates, int64_t others = 0);

  // What came of it. A draft of a slot was verified.
  void judged(int64_t slot, DraftSource source, int64_t drafted, int64_t accepted);
  void verified(int64_t sequences, int64_t drafts, double seconds) {
    costs_.verified(sequences, drafts, seconds);
  }
  void drafted(int64_t sequences, int64_t depth, double seconds) {
    costs_.drafted(sequences, depth, seconds);
  }
  const DraftCosts& costs() const { return costs_; }

 private:
  struct Slot {
    std::array<Acceptance, kDraftSources> acceptance;
    // Seconds it may spend on an attempt: a share of its plain steps, and what the last attempt
    // gained.
    double saved = 0;
    double token_seconds = 0;  // of a plain step, its part
  };
  // One guess more for a sequence, and the chance that it counts.
  struct Guess {
    double survives = 0;
    int32_t place = 0, candidate = 0;
  };

  // The better source of a candidate if it were alone; sets its source.
  void pick_source(DraftCandidate& candidate, int64_t sequences) const;
  // Most tokens a second that drafts of this source give, and of which length; of one sequence
  // among so many.
  struct Best {
    double rate = 0;
    int64_t drafts = 0;
  };
  Best best(const Acceptance& acceptance, DraftSource source, int64_t most,
            int64_t sequences) const;
  // The lengths with the most tokens a second of all candidates together.
  void share(std::span<DraftCandidate> candidates, int64_t sequences);
  void probe(DraftCandidate& candidate, int64_t sequences);
  void explore(DraftCandidate& candidate, int64_t sequences) const;
  bool plain_is_due(int64_t sequences);
  Slot& slot(int64_t i) { return slots_[static_cast<size_t>(i)]; }

  Options options_;
  DraftCosts costs_;
  std::vector<Slot> slots_;
  std::vector<Guess> guesses_;
  std::array<Acceptance, kDraftSources> everyone_;  // what a new sequence starts from
  int64_t steps_without_plain_ = 0;
  double left_ = 0;            // that sequences which ended had saved, for whoever comes first
  int64_t free_attempts_ = 4;  // of an engine that knows nothing yet
};

}  // namespace pewter
