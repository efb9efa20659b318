#include "engine/step_batch.h"

#include <algorithm>
#include <numeric>

#include "model/kv_cache.h"

namespace pewter {

Result<StepBatch> StepBatch::make(Device& device, const Sizes& sizes) {
  StepBatch made;
  made.device_ = &device;
  made.sizes_ = sizes;
  made.staging_.resize(static_cast<size_t>(sizes.words()));
  made.there_.resize(made.staging_.size());
  TRY_ASSIGN(made.memory_, device.allocate(sizes.words() * 4));
  made.batch_.page_table_stride = sizes.pages;
  return made;
}

void StepBatch::lay_out(int64_t rows, int64_t sequences) {
  const auto* const base = reinterpret_cast<const int32_t*>(memory_.data());
  const int32_t* at = base + table_words();
  const auto take = [&at](int64_t count) { return std::exchange(at, at + count); };
  batch_.tokens = take(rows);
  batch_.hidden_rows = take(rows);
  batch_.positions = take(3 * rows);
  batch_.context_length = take(sequences);
  batch_.accepted = take(sequences);
  batch_.embedding_index = take(rows);
  batch_.row_sequence = take(rows);
  batch_.logits_rows = take(rows);
  batch_.row_begin = take(sequences + 1);
  batch_.position_delta = take(sequences);
  batch_.slot = take(sequences);
  batch_.page_table = base;
  arrays_end_ = at - base;
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

const Batch& StepBatch::fill(Phase phase, std::span<const SequenceRows> rows,
                             std::span<const int64_t> positions) {
  const auto sequences = static_cast<int64_t>(rows.size());
  CHECK(sequences <= sizes_.sequences, sequences, " sequences in a step");
  int64_t all_rows = 0;
  for (const SequenceRows& plan : rows) all_rows += std::ssize(plan.tokens);
  CHECK(all_rows <= sizes_.rows, all_rows, " rows in a step");
  lay_out(all_rows, sequences);
  int64_t row = 0, logits = 0;
  for (int64_t s = 0; s < sequences; ++s) {
    const SequenceRows& plan = rows[static_cast<size_t>(s)];
    const SequenceState& sequence = *plan.sequence;
    const auto count = static_cast<int64_t>(plan.tokens.size());
    const int64_t begin = positions.empty() ? sequence.length : positions[static_cast<size_t>(s)];
    CHECK(count > 0, "a sequence without rows");
    CHECK(pages_for(begin + count) <= static_cast<int64_t>(sequence.pages.size()), "sequence of ",
          begin, " + ", count, " positions in ", sequence.pages.size(), " pages");
    host(batch_.row_begin)[s] = static_cast<int32_t>(row);
    host(batch_.position_delta)[s] = sequence.position_delta;
    host(batch_.context_length)[s] = static_cast<int32_t>(begin);
    host(batch_.slot)[s] = sequence.slot;
    host(batch_.accepted)[s] = sequence.pending;
    const int64_t table = s * batch_.page_table_stride;
    std::ranges::copy(sequence.pages, staging_.begin() + table);
    upload(table, table + std::ssize(sequence.pages));
    for (int64_t i = 0; i < count; ++i, ++row) {
      host(batch_.tokens)[row] = plan.tokens[static_cast<size_t>(i)];
      host(batch_.embedding_index)[row] = -1;
      host(batch_.hidden_rows)[row] =
          static_cast<int32_t>(plan.hidden_row < 0 ? row : plan.hidden_row + i);
      host(batch_.row_sequence)[row] = static_cast<int32_t>(s);
      std::fill_n(host(batch_.positions) + 3 * row, 3, static_cast<int32_t>(begin + i));
      const bool wanted = plan.logits == LogitsWanted::kAll ||
                          (plan.logits == LogitsWanted::kLast && i + 1 == count) ||
                          (plan.logits == LogitsWanted::kAllButFirst && i > 0);
      if (!wanted) continue;
      CHECK(logits < sizes_.logits_rows, "too many rows with logits");
      host(batch_.logits_rows)[logits++] = static_cast<int32_t>(row);
    }
  }
  host(batch_.row_begin)[sequences] = static_cast<int32_t>(row);
  batch_.phase = phase;
  batch_.rows = row;
  batch_.sequences = sequences;
  batch_.logits_count = logits;
  upload_arrays();
  return batch_;
}

const Batch& StepBatch::want_logits(int64_t begin, int64_t end) {
  CHECK(begin >= 0 && begin < end && end <= batch_.rows && end - begin <= sizes_.logits_rows,
        "logits of rows ", begin, " to ", end, " of ", batch_.rows);
  int32_t* const rows = host(batch_.logits_rows);
  std::iota(rows, rows + (end - begin), static_cast<int32_t>(begin));
  batch_.logits_count = end - begin;
  upload_arrays();
  return batch_;
}

}  // namespace pewter
