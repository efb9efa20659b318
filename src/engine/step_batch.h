// StepBatch: the Batch of a step, filled on the host and copied to the device in one piece, at
// addresses that stay.
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
};

class StepBatch {
 public:
  struct Sizes {
    int64_t rows = 0, sequences = 0, logits_rows = 0;
    int64_t pages = 0;  // a sequence may have
    // Of all arrays together.
    int64_t words() const {
      return rows * 6 + (sequences + 1) + sequences * (4 + pages) + logits_rows;
    }
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
  Device* device_ = nullptr;
  Sizes sizes_;
  Batch batch_;
  // The batch's arrays one after another: written here, copied to memory_ at the same offsets.
  std::vector<int32_t> staging_;
  Buffer memory_;
};

}  // namespace pewter
