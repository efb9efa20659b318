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
  TRY_ASSIGN(made.memory_, device.allocate(sizes.words() * 4));
  const auto* at = reinterpret_cast<const int32_t*>(made.memory_.data());
  const auto take = [&at](int64_t count) { return std::exchange(at, at + count); };
  Batch& batch = made.batch_;
  batch.page_table_stride = sizes.pages;
  batch.tokens = take(sizes.rows);
  batch.embedding_index = take(sizes.rows);
  batch.positions = take(3 * sizes.rows);
  batch.row_sequence = take(sizes.rows);
  batch.row_begin = take(sizes.sequences + 1);
  batch.position_delta = take(sizes.sequences);
  batch.context_length = take(sizes.sequences);
  batch.slot = take(sizes.sequences);
  batch.accepted = take(sizes.sequences);
  batch.page_table = take(sizes.sequences * sizes.pages);
  batch.logits_rows = take(sizes.logits_rows);
  return made;
}

const Batch& StepBatch::fill(Phase phase, std::span<const SequenceRows> rows,
                             std::span<const int64_t> positions) {
  const auto sequences = static_cast<int64_t>(rows.size());
  CHECK(sequences <= sizes_.sequences, sequences, " sequences in a step");
  const auto* base = reinterpret_cast<const int32_t*>(memory_.data());
  const auto host = [&](const int32_t* device_array) {
    return staging_.data() + (device_array - base);
  };
  int64_t row = 0, logits = 0;
  for (int64_t s = 0; s < sequences; ++s) {
    const SequenceRows& plan = rows[static_cast<size_t>(s)];
    const SequenceState& sequence = *plan.sequence;
    const auto count = static_cast<int64_t>(plan.tokens.size());
    const int64_t begin = positions.empty() ? sequence.length : positions[static_cast<size_t>(s)];
    CHECK(count > 0 && row + count <= sizes_.rows, count, " rows after ", row);
    CHECK(pages_for(begin + count) <= static_cast<int64_t>(sequence.pages.size()), "sequence of ",
          begin, " + ", count, " positions in ", sequence.pages.size(), " pages");
    host(batch_.row_begin)[s] = static_cast<int32_t>(row);
    host(batch_.position_delta)[s] = sequence.position_delta;
    host(batch_.context_length)[s] = static_cast<int32_t>(begin);
    host(batch_.slot)[s] = sequence.slot;
    host(batch_.accepted)[s] = sequence.pending;
    std::copy(sequence.pages.begin(), sequence.pages.end(),
              host(batch_.page_table) + s * batch_.page_table_stride);
    for (int64_t i = 0; i < count; ++i, ++row) {
      host(batch_.tokens)[row] = plan.tokens[static_cast<size_t>(i)];
      host(batch_.embedding_index)[row] = -1;
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
  device_->copy_to_device(memory_.data(), std::as_bytes(std::span(staging_)));
  return batch_;
}

const Batch& StepBatch::want_logits(int64_t begin, int64_t end) {
  CHECK(begin >= 0 && begin < end && end <= batch_.rows && end - begin <= sizes_.logits_rows,
        "logits of rows ", begin, " to ", end, " of ", batch_.rows);
  const auto* base = reinterpret_cast<const int32_t*>(memory_.data());
  int32_t* const rows = staging_.data() + (batch_.logits_rows - base);
  std::iota(rows, rows + (end - begin), static_cast<int32_t>(begin));
  batch_.logits_count = end - begin;
  device_->copy_to_device(memory_.data(), std::as_bytes(std::span(staging_)));
  return batch_;
}

}  // namespace pewter
