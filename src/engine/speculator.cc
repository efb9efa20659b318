#include "engine/speculator.h"

#include <algorithm>

namespace pewter {

Speculator::Speculator(const Options& options)
    : options_(options.draft),
      model_(options.model),
      clock_(options.clock),
      depth_({.max_sequences = options.max_sequences,
              .fixed = options.draft.depth == DraftLength::kFixed}),
      slots_(static_cast<size_t>(options.max_sequences)) {
  if (!model_)
    shortest_match_ = options_.shortest_match;
  else if (options_.look_up)
    shortest_match_ = kLongMatch;
  candidates_.reserve(slots_.size());
  asked_.reserve(slots_.size());
  for (Slot& slot : slots_) slot.found.reserve(kMaxDrafts);
}

Status Speculator::begin(const SequenceState& state, int64_t positions) {
  depth_.begin(state.slot);
  if (shortest_match_ > 0) slot(state).index.begin(positions, shortest_match_);
  return model_ ? model_->begin(state, positions) : Status();
}

void Speculator::read(SequenceState& state, std::span<const int32_t> prompt, int64_t begin) {
  if (model_) model_->read(state, prompt, begin);
}

void Speculator::look_up(const DraftSequence& sequence, DraftCandidate& candidate) {
  if (shortest_match_ == 0) return;
  std::vector<int32_t>& found = slot(*sequence.state).found;
  found.clear();
  slot(*sequence.state).index.draft(sequence.tokens, sequence.most, found);
  candidate.found = std::ssize(found);
}

bool Speculator::start(std::span<const DraftSequence> sequences, int64_t others) {
  begin_ = now();
  candidates_.clear();
  for (const DraftSequence& sequence : sequences) {
    DraftCandidate candidate{.slot = sequence.state->slot, .most = model_ ? sequence.most : 0};
    look_up(sequence, candidate);
    candidates_.push_back(candidate);
  }
  depth_.choose(candidates_, others);
  depth_asked_ = 0;
  for (size_t i = 0; i < sequences.size(); ++i) {
    const DraftCandidate& chosen = candidates_[i];
    Slot& slot = this->slot(*sequences[i].state);
    slot.source = chosen.source;
    if (chosen.source == DraftSource::kLookup)
      sequences[i].drafts->insert(sequences[i].drafts->end(), slot.found.begin(),
                                  slot.found.begin() + chosen.drafts);
    else
      depth_asked_ = std::max(depth_asked_, chosen.drafts);
  }
  return model_ && ask_model(sequences);
}

void Speculator::finish(bool all) {
  if (model_) model_->finish(all);
  depth_.drafted(std::ssize(candidates_), depth_asked_, now() - begin_);
}

bool Speculator::ask_model(std::span<const DraftSequence> sequences) {
  asked_.assign(sequences.begin(), sequences.end());
  for (size_t i = 0; i < asked_.size(); ++i)
    asked_[i].most = candidates_[i].source == DraftSource::kModel ? candidates_[i].drafts : 0;
  return model_->start(asked_);
}

void Speculator::judged(const SequenceState& state, int64_t drafted, int64_t accepted) {
  depth_.judged(state.slot, slot(state).source, drafted, accepted);
}

void Speculator::stepped(int64_t sequences, int64_t drafts, double seconds) {
  depth_.verified(sequences, drafts, seconds);
}

}  // namespace pewter
