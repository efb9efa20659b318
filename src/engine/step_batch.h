// StepBatch: the Batch of a step, filled on the host. What differs from what is on the device is
// copied there: the arrays in one piece, and pages of a sequence that changed, which is seldom. The
// arrays lie close together, those that change least behind the others, so that a few rows of a few
// sequences are a small copy; where they lie depends on the numbers of rows and sequences alone, so
// that a recorded step finds them. The page table, long where contexts are, has one place for all
// steps.
#pragma once

#include <span>
#include <vector>

#include "backend/batch.h"
#include "engine/sequence_state.h"
#include "tensor/buffer.h"

namespace pewter {

// Rows whose logits are wanted.
enum class LogitsWanted : uint8_t { kNone, kLast, kAll, kAllButFirst };

// What a step does for one sequence.
struct SequenceRows {
  SequenceState* sequence = nullptr;
  std::span<const int32_t> tokens;
  LogitsWanted logits = LogitsWanted::kLast;
  // Of an MTP step: where the hidden that its first row starts from is, and behind it those of the
  // others; -1: where the rows themselves are.
  int64_t hidden_row = -1;
};

class StepBatch {
 public:
  struct Sizes {
    int64_t rows = 0, sequences = 0, logits_rows = 0;
    int64_t pages = 0;  // a sequence may have
    // Of all arrays together.
    int64_t words() const { return rows * 8 + (sequences + 1) + sequences * (4 + pages); }
  };
  // device outlives it. Error: kResourceExhausted.
  static Result<StepBatch> make(Device& device, const Sizes& sizes);

  // A row's place in its sequence is positions[i] and on for sequence i; without: its committed
  // length. The result is valid until the next call.
  const Batch& fill(Phase phase, std::span<const SequenceRows> rows,
                    std::span<const int64_t> positions = {});
  // The same step, but that the logits of its rows [begin, end) are wanted.
  const Batch& want_logits(int64_t begin, int64_t end);

 private:
  void lay_out(int64_t rows, int64_t sequences);
  int32_t* host(const int32_t* array);
  // Words [begin, end) of memory_ as they are in staging_.
  void upload(int64_t begin, int64_t end);
  void upload_arrays() { upload(table_words(), arrays_end_); }
  int64_t table_words() const { return sizes_.sequences * sizes_.pages; }

  Device* device_ = nullptr;
  Sizes sizes_;
  Batch batch_;
  int64_t arrays_end_ = 0;
  // The page table, and behind it the batch's other arrays one after another: written here, copied
  // to memory_ at the same offsets; and what memory_ holds.
  std::vector<int32_t> staging_, there_;
  Buffer memory_;
};

}  // namespace pewter
