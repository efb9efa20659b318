#include "engine/mtp_drafter.h"

#include <algorithm>

namespace pewter {

Result<std::unique_ptr<Drafter>> MtpDrafter::make(ModelRunner& runner, Device& device, Ops& ops) {
  if (!runner.has_mtp())
    return Error{ErrorCode::kNotFound,
                 "speculation with mtp needs the MTP layer (mtp.fc and mtp.layers.0), and the "
                 "model was loaded without one"};
  const RunnerOptions& options = runner.options();
  std::unique_ptr<MtpDrafter> drafter(new MtpDrafter(runner, ops));
  const ModelWeights& weights = runner.model().weights;
  TRY_ASSIGN(drafter->chooser_, GreedyChooser::make(device, ops,
                                                    {.rows = options.max_sequences,
                                                     .choices = options.max_sequences * kMaxDrafts,
                                                     .vocab_limit = weights.drafting_head().n,
                                                     .ids = weights.drafted_ids()}));
  TRY_ASSIGN(drafter->waiting_,
             WaitingRows::make(device, {.slots = options.max_sequences,
                                        .width = runner.model().config.hidden_size,
                                        .dtype = ops.activation_dtype()}));
  const auto sequences = static_cast<size_t>(options.max_sequences);
  drafter->rows_.reserve(sequences + 1);
  drafter->drafting_.reserve(sequences);
  return std::unique_ptr<Drafter>(std::move(drafter));
}

Status MtpDrafter::begin(const SequenceState& state, int64_t) {
  waiting_->clear(state.slot);
  return {};
}

void MtpDrafter::read(SequenceState& state, std::span<const int32_t> prompt, int64_t begin) {
  // The prompt's last position waits for the token after it: it is the first draft's.
  const int64_t end = std::min(state.length, std::ssize(prompt) - 1);
  if (end <= begin) return;
  const auto tokens =
      prompt.subspan(static_cast<size_t>(begin) + 1, static_cast<size_t>(end - begin));
  runner_.fill_mtp({.sequence = &state, .tokens = tokens, .position = begin, .hidden_row = 0});
}

MtpRows MtpDrafter::committed_rows(const DraftSequence& sequence) {
  return {.sequence = sequence.state,
          .tokens = sequence.tokens.last(static_cast<size_t>(sequence.rows)),
          .position = sequence.state->length - sequence.rows,
          .hidden_row = sequence.first_row};
}

// Those that waited, and then the last step's but the last `spared`.
MtpRows MtpDrafter::unread_rows(const DraftSequence& sequence, int64_t spared) const {
  const int32_t slot = sequence.state->slot;
  const int64_t waiting = waiting_->count(slot), all = waiting + sequence.rows;
  MtpRows rows = committed_rows(sequence);
  rows.position -= waiting;
  rows.tokens =
      sequence.tokens.last(static_cast<size_t>(all)).first(static_cast<size_t>(all - spared));
  if (waiting > 0) rows.earlier = waiting_->rows(slot, 0);
  return rows;
}

void MtpDrafter::put_off(const DraftSequence& sequence) {
  const int32_t slot = sequence.state->slot;
  ops_.copy({.from = runner_.hidden_rows(sequence.first_row, sequence.rows),
             .to = waiting_->next(slot, 0, sequence.rows)});
  waiting_->add(slot, sequence.rows);
}

void MtpDrafter::follow(const MtpRows& rows) {
  int64_t total = std::ssize(rows.tokens);
  for (const MtpRows& other : rows_) total += std::ssize(other.tokens);
  if (total > runner_.options().chunk_rows) follow_all();
  rows_.push_back(rows);
}

void MtpDrafter::follow_all() {
  if (!rows_.empty()) runner_.follow_mtp(rows_);
  for (const MtpRows& rows : rows_) waiting_->clear(rows.sequence->slot);
  rows_.clear();
}

// One sequence alone is read as it is drafted for, unless something of it waits. For more of them
// there would be too many kinds of steps to record.
bool MtpDrafter::reads_at_once(const DraftSequence& sequence) const {
  return drafting_.size() == 1 && sequence.most > 0 && waiting_->count(sequence.state->slot) == 0;
}

// Before drafting, which overwrites the target's hidden.
void MtpDrafter::keep_up(std::span<const DraftSequence> sequences) {
  rows_.clear();
  for (const DraftSequence& sequence : sequences) {
    if (reads_at_once(sequence)) continue;
    if (sequence.most > 0) {
      const MtpRows rows = unread_rows(sequence, 1);
      if (!rows.tokens.empty()) follow(rows);
    } else if (waiting_->has_room(sequence.state->slot, sequence.rows)) {
      put_off(sequence);
    } else {
      follow(unread_rows(sequence, 0));
    }
  }
  follow_all();
}

// First keys and values of the committed rows; then the last one of every sequence, with the hidden
// of the target, gives its first guess, and, as long as guesses are wanted, one row each with the
// layer's own. All of it is enqueued, as one recorded step as far as all want guesses and one each
// from there on. Who gets most guesses stands first, so that those who go on are the first rows of
// the step before.
bool MtpDrafter::start(std::span<const DraftSequence> sequences) {
  drafting_.clear();
  for (const DraftSequence& sequence : sequences)
    if (sequence.most > 0) drafting_.push_back(&sequence);
  std::ranges::sort(drafting_, [](const DraftSequence* a, const DraftSequence* b) {
    return a->most != b->most ? a->most > b->most : a < b;
  });
  keep_up(sequences);
  if (drafting_.empty()) return false;
  rows_.clear();
  for (const DraftSequence* sequence : drafting_) {
    const MtpRows rows = committed_rows(*sequence);
    const int64_t before = std::ssize(rows.tokens) - 1;
    rows_.push_back({.sequence = rows.sequence,
                     .tokens = rows.tokens.last(1),
                     .position = rows.position + before,
                     .hidden_row = rows.hidden_row + before});
  }
  if (const DraftSequence& first = *drafting_[0]; reads_at_once(first) && first.rows > 1)
    rows_.push_back(unread_rows(first, 1));
  const int64_t count = std::ssize(drafting_);
  const int64_t together = count <= kMostChained ? drafting_.back()->most : 1;
  runner_.draft_mtp(rows_, {.sequences = count, .each = together}, *chooser_);
  int64_t choices = together * count;
  for (int64_t number = together + 1; guessing(number) > 0; ++number) {
    runner_.draft_mtp_on(guessing(number), choices, *chooser_);
    choices += guessing(number);
  }
  chooser_->read(choices);
  hand_out();
  return true;
}

int64_t MtpDrafter::guessing(int64_t number) const {
  const auto wants = [number](const DraftSequence* sequence) { return sequence->most >= number; };
  return std::ranges::partition_point(drafting_, wants) - drafting_.begin();
}

void MtpDrafter::hand_out() const {
  for (size_t i = 0; i < drafting_.size(); ++i) {
    auto at = static_cast<int64_t>(i);
    for (int64_t number = 1; number <= drafting_[i]->most; ++number) {
      drafting_[i]->drafts->push_back(static_cast<int32_t>(-1 - at));
      at += guessing(number);
    }
  }
}

void MtpDrafter::finish(bool all) {
  if (drafting_.empty()) return;
  const std::span<const int32_t> guesses = chooser_->tokens();
  for (const DraftSequence* sequence : drafting_) {
    std::vector<int32_t>& drafts = *sequence->drafts;
    for (auto draft = drafts.end() - sequence->most; draft != drafts.end(); ++draft) {
      *draft = guesses[static_cast<size_t>(-1 - *draft)];
      if (*draft >= 0) continue;
      *draft = chooser_->token_for_none();
      if (all) continue;
      drafts.erase(draft, drafts.end());  // not finite: it and what came of it is nothing
      break;
    }
  }
  drafting_.clear();
}

}  // namespace pewter
