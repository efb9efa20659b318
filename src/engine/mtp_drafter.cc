#include "engine/mtp_drafter.h"

#include <algorithm>

namespace pewter {

Result<std::unique_ptr<Drafter>> MtpDrafter::make(ModelRunner& runner, Device& device, Ops& ops) {
  if (!runner.has_mtp())
    return Error{ErrorCode::kNotFound,
                 "speculation with mtp needs the MTP layer (mtp.fc and mtp.layers.0), and the "
                 "model was loaded without one"};
  TRY_ASSIGN(StepSampler sampler,
             StepSampler::make(device, ops,
                               {.rows = runner.options().max_sequences,
                                .vocab_limit = runner.model().config.vocab_size,
                                .token_mask = {}}));
  return std::unique_ptr<Drafter>(new MtpDrafter(runner, std::move(sampler)));
}

MtpDrafter::MtpDrafter(ModelRunner& runner, StepSampler sampler)
    : runner_(runner),
      sampler_(std::move(sampler)),
      greedy_({.prompt = {0}, .sampling = {.temperature = 0}}, {}) {
  const auto sequences = static_cast<size_t>(runner.options().max_sequences);
  rows_.reserve(sequences);
  drafting_.reserve(sequences);
  greedy_rows_.reserve(sequences);
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

// Before drafting, which overwrites the target's hidden.
void MtpDrafter::keep_up(std::span<const DraftSequence> sequences) {
  rows_.clear();
  for (const DraftSequence& sequence : sequences)
    if (sequence.most == 0) rows_.push_back(committed_rows(sequence));
  if (!rows_.empty()) runner_.follow_mtp(rows_);
}

// First the committed rows of every sequence, with the hidden of the target; then, as long as
// drafts are wanted, one row each with the layer's own.
void MtpDrafter::draft(std::span<const DraftSequence> sequences) {
  keep_up(sequences);
  rows_.clear();
  drafting_.clear();
  for (const DraftSequence& sequence : sequences) {
    if (sequence.most <= 0) continue;
    rows_.push_back(committed_rows(sequence));
    drafting_.push_back(&sequence);
  }
  for (int64_t drafted = 1; !rows_.empty(); ++drafted) step(drafted);
}

void MtpDrafter::step(int64_t drafted) {
  runner_.draft_mtp(rows_);
  greedy_rows_.assign(rows_.size(), {.sampler = &greedy_});
  const auto choices = sampler_.sample(runner_.logits(), greedy_rows_);
  size_t kept = 0;
  int64_t row = 0;
  for (size_t i = 0; i < rows_.size(); ++i) {
    const MtpRows ran = rows_[i];
    const auto count = static_cast<int64_t>(ran.tokens.size());
    row += count;
    if (choices[i].token < 0) continue;  // not finite: nothing to guess
    std::vector<int32_t>& drafts = *drafting_[i]->drafts;
    drafts.push_back(choices[i].token);
    if (drafted == drafting_[i]->most) continue;
    rows_[kept] = {.sequence = ran.sequence,
                   .tokens = std::span(&drafts.back(), 1),
                   .position = ran.position + count,
                   .hidden_row = row - 1};
    drafting_[kept++] = drafting_[i];
  }
  rows_.resize(kept);
  drafting_.resize(kept);
}

}  // namespace pewter
