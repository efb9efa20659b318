#include "model/qwen35/draft_head.h"

#include <algorithm>

#include "checkpoint/linear_reader.h"
#include "tensor/formats/int8_row.h"

namespace pewter {
namespace {

constexpr int64_t kStoredRows = 1024;  // at a time; a multiple of what store_rows wants

WeightSpec spec_of_rows(const ModelConfig& config, int64_t rows) {
  return {.format = WeightFormat::kInt8Row, .n = rows, .k = config.hidden_size};
}

// Takes rows in order and stores them as they fill its buffer.
class RowCollector {
 public:
  RowCollector(Device& device, WeightMatrix& to)
      : device_(device), to_(to), floats_(static_cast<size_t>(kStoredRows * to.k)) {}

  Status add(const WeightMatrix& rows, int64_t row) {
    decode_row(rows, 0, row, floats_.data() + count_ * to_.k);
    return ++count_ == kStoredRows ? flush() : Status();
  }
  Status flush() {
    if (count_ == 0) return {};
    TRY_ASSIGN(WeightMatrix codes,
               make_canonical_weight({.format = to_.format, .n = count_, .k = to_.k}));
    encode_int8(floats_.data(), codes, 0);
    device_.store_rows(to_, 0, stored_, codes);
    stored_ += std::exchange(count_, 0);
    return {};
  }

 private:
  Device& device_;
  WeightMatrix& to_;
  std::vector<float> floats_;
  int64_t count_ = 0, stored_ = 0;
};

}  // namespace

int64_t draft_head_bytes(const ModelConfig& config, const Device& device, int64_t rows) {
  return device.stored_weight_bytes(spec_of_rows(config, rows));
}

Result<DraftHead> load_draft_head(const Checkpoint& checkpoint, const ModelConfig& config,
                                  Device& device, std::vector<int32_t> ids) {
  CHECK(!ids.empty() && ids.front() >= 0 && ids.back() < config.vocab_size &&
            std::ranges::adjacent_find(ids, std::greater_equal<>()) == ids.end(),
        "ids of a draft head that are not in order, or not in the vocabulary");
  TRY_ASSIGN(const QuantConfig quant, QuantConfig::parse(checkpoint.config()));
  Findings findings;
  Claims claims(checkpoint.tensors().size());
  const std::optional<LinearSource> source =
      find_linear(checkpoint, quant,
                  {.module = config.tied_embeddings ? "embed_tokens" : "lm_head",
                   .n = config.vocab_size,
                   .k = config.hidden_size},
                  claims, findings);
  if (!source) return findings.to_error(checkpoint.directory());

  DraftHead head;
  TRY_ASSIGN(head.rows, device.make_weight(spec_of_rows(config, std::ssize(ids))));
  const std::vector<bool> direct_io(static_cast<size_t>(checkpoint.file_count()), false);
  LinearReader reader(checkpoint, direct_io, findings);
  RowBuffers buffers([](int64_t bytes) { return Buffer::host(bytes); });
  RowCollector collector(device, head.rows);
  auto next = ids.begin();
  for (const RowRange piece : split_rows(*source)) {
    const auto end = std::lower_bound(next, ids.end(), static_cast<int32_t>(piece.end));
    if (next == end) continue;
    Status stored;
    TRY(reader.read(*source, piece, source->has_zeros, buffers, [&](const WeightMatrix& rows) {
      for (; next != end && stored; ++next) stored = collector.add(rows, *next - piece.begin);
    }));
    TRY(stored);
    if (findings.has_faults()) return findings.to_error(checkpoint.directory());
  }
  TRY(collector.flush());
  if (ids.back() != std::ssize(ids) - 1) head.ids = std::move(ids);
  return head;
}

}  // namespace pewter
