#include "engine/step_batch.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "model/kv_cache.h"

namespace pewter {

Result<StepBatch> StepBatch::make(Device& device, const Sizes& sizes) {
  StepBatch made;
  made.device_ = &device;
  made.sizes_ = sizes;
  made.staging_.resize(static_cast<size_t>(sizes.words()));
  made.there_.resize(made.staging_.size());
  TRY_ASSIGN(made.memory_, device.allocate(sizes.words() * 4));
  made.chain_.reserve(static_cast<size_t>(sizes.steps));
  return made;
}

Batch StepBatch::lay_out(Phase phase, int64_t rows, int64_t sequences) {
  const auto* const base = reinterpret_cast<const int32_t*>(memory_.data());
  const auto take = [&](int64_t count) { return base + std::exchange(end_, end_ + count); };
  Batch batch{.phase = phase, .rows = rows, .sequences = sequences};
  batch.tokens = take(rows);
  batch.hidden_rows = take(rows);
  batch.positions = take(3 * rows);
  batch.context_length = take(sequences);
  batch.accepted = take(sequences);
  batch.embedding_index = take(rows);
  batch.row_sequence = take(rows);
  batch.logits_rows = take(rows);
  batch.row_begin = take(sequences + 1);
  batch.position_delta = take(sequences);
  batch.slot = take(sequences);
  batch.page_table = base;
  batch.page_table_stride = sizes_.pages;
  batch.is_short = true;  // until it is found not to be
  return batch;
}

int32_t* StepBatch::host(const int32_t* array) {
  return staging_.data() + (array - reinterpret_cast<const int32_t*>(memory_.data()));
}

void StepBatch::upload(int64_t begin, int64_t end) {
  begin = std::mismatch(staging_.begin() + begin, staging_.begin() + end, there_.begin() + begin)
              .first -
          staging_.begin();
  const auto is_there = [this](int64_t word) {
    return staging_[static_cast<size_t>(word)] == there_[static_cast<size_t>(word)];
  };
  while (end > begin && is_there(end - 1)) --end;
  if (begin == end) return;
  const auto words =
      std::span(staging_).subspan(static_cast<size_t>(begin), static_cast<size_t>(end - begin));
  std::ranges::copy(words, there_.begin() + begin);
  device_->copy_to_device(memory_.data() + 4 * begin, std::as_bytes(words));
}

std::span<const Batch> StepBatch::fill_chain(Phase phase, std::span<const SequenceRows> rows,
                                             std::span<const int64_t> positions,
                                             const Further& further) {
  const auto sequences = static_cast<int64_t>(rows.size());
  CHECK(sequences <= sizes_.sequences, sequences, " sequences in a step");
  CHECK(further.steps < sizes_.steps && further.sequences <= sequences, "a chain of ",
        further.steps, " further steps of ", further.sequences, " sequences");
  int64_t all_rows = 0;
  for (const SequenceRows& plan : rows) all_rows += std::ssize(plan.tokens);
  CHECK(all_rows <= sizes_.rows, all_rows, " rows in a step");
  chain_.clear();
  end_ = table_words();
  chain_.push_back(lay_out(phase, all_rows, sequences));
  int64_t row = 0;
  for (int64_t s = 0; s < sequences; ++s) {
    const SequenceRows& plan = rows[static_cast<size_t>(s)];
    const int64_t begin =
        positions.empty() ? plan.sequence->length : positions[static_cast<size_t>(s)];
    row = write(plan, s, row, begin, s < further.sequences ? further.steps : 0);
  }
  Batch& first = chain_.front();
  first.is_short = first.is_short && first.logits_count == 1;
  for (int64_t i = 0; i < further.steps; ++i) {
    const Batch& before = chain_.back();
    chain_.push_back(lay_out(phase, further.sequences, further.sequences));
    write_behind(before, i * further.sequences, chain_.back());
  }
  upload_arrays();
  return chain_;
}

int64_t StepBatch::write(const SequenceRows& plan, int64_t index, int64_t row, int64_t begin,
                         int64_t further) {
  Batch& batch = chain_.front();
  const SequenceState& sequence = *plan.sequence;
  const auto count = static_cast<int64_t>(plan.tokens.size());
  CHECK(count > 0, "a sequence without rows");
  CHECK(pages_for(begin + count + further) <= std::ssize(sequence.pages), "sequence of ", begin,
        " + ", count + further, " positions in ", sequence.pages.size(), " pages");
  if (begin + count + further > kShortContext) batch.is_short = false;  // for all steps at once
  host(batch.row_begin)[index] = static_cast<int32_t>(row);
  host(batch.row_begin)[index + 1] = static_cast<int32_t>(row + count);
  host(batch.position_delta)[index] = sequence.position_delta;
  host(batch.context_length)[index] = static_cast<int32_t>(begin);
  host(batch.slot)[index] = sequence.slot;
  host(batch.accepted)[index] = sequence.pending;
  const int64_t table = index * sizes_.pages;
  std::ranges::copy(sequence.pages, staging_.begin() + table);
  upload(table, table + std::ssize(sequence.pages));
  for (int64_t i = 0; i < count; ++i, ++row) {
    host(batch.tokens)[row] = plan.tokens[static_cast<size_t>(i)];
    host(batch.embedding_index)[row] = -1;
    host(batch.hidden_rows)[row] =
        static_cast<int32_t>(plan.hidden_row < 0 ? row : plan.hidden_row + i);
    host(batch.row_sequence)[row] = static_cast<int32_t>(index);
    std::fill_n(host(batch.positions) + 3 * row, 3, static_cast<int32_t>(begin + i));
    const bool wanted = plan.logits == LogitsWanted::kAll ||
                        (plan.logits == LogitsWanted::kLast && i + 1 == count) ||
                        (plan.logits == LogitsWanted::kAllButFirst && i > 0);
    if (!wanted) continue;
    CHECK(batch.logits_count < sizes_.logits_rows, "too many rows with logits");
    host(batch.logits_rows)[batch.logits_count++] = static_cast<int32_t>(row);
  }
  return row;
}

void StepBatch::write_behind(const Batch& before, int64_t first_choice, Batch& batch) {
  batch.logits_count = batch.sequences;
  batch.is_short = before.is_short && batch.logits_count == 1;
  host(batch.row_begin)[0] = 0;
  for (int64_t s = 0; s < batch.sequences; ++s) {
    const int32_t begin = host(before.row_begin)[s], end = host(before.row_begin)[s + 1];
    const int32_t position = host(before.context_length)[s] + end - begin;
    host(batch.tokens)[s] = static_cast<int32_t>(-1 - first_choice - s);
    host(batch.hidden_rows)[s] = end - 1;
    std::fill_n(host(batch.positions) + 3 * s, 3, position);
    host(batch.context_length)[s] = position;
    host(batch.embedding_index)[s] = -1;
    host(batch.row_sequence)[s] = host(batch.logits_rows)[s] = static_cast<int32_t>(s);
    host(batch.row_begin)[s + 1] = static_cast<int32_t>(s + 1);
    host(batch.accepted)[s] = host(before.accepted)[s];
    host(batch.position_delta)[s] = host(before.position_delta)[s];
    host(batch.slot)[s] = host(before.slot)[s];
  }
}

const Batch& StepBatch::want_logits(int64_t begin, int64_t end) {
  Batch& batch = chain_.front();
  CHECK(begin >= 0 && begin < end && end <= batch.rows && end - begin <= sizes_.logits_rows,
        "logits of rows ", begin, " to ", end, " of ", batch.rows);
  int32_t* const rows = host(batch.logits_rows);
  std::iota(rows, rows + (end - begin), static_cast<int32_t>(begin));
  batch.logits_count = end - begin;
  upload_arrays();
  return batch;
}

}  // namespace pewter
