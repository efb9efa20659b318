// StepBatch: the Batch of a step, filled on the host. What differs from what is on the device is
// copied there: the arrays in one piece, and pages of a sequence that changed, which is seldom. The
// arrays lie close together, those that change least behind the others, so that a few rows of a few
// sequences are a small copy; where they lie depends on the numbers of rows and sequences alone, so
// that a recorded step finds them. The page table, long where contexts are, has one place for all
// steps. Steps that go on from each other may be filled together: their arrays lie one behind the
// other and travel at once.
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
    int64_t steps = 1;  // of a chain
    // Of all arrays together.
    int64_t words() const {
      const auto of_step = [this](int64_t n) { return n * 8 + sequences * 5 + 1; };
      return sequences * pages + of_step(rows) + (steps - 1) * of_step(sequences);
    }
  };
  // device outlives it. Error: kResourceExhausted.
  static Result<StepBatch> make(Device& device, const Sizes& sizes);

  // A row's place in its sequence is positions[i] and on for sequence i; without: its committed
  // length. The result is valid until the next call.
  const Batch& fill(Phase phase, std::span<const SequenceRows> rows,
                    std::span<const int64_t> positions = {}) {
    return fill_chain(phase, rows, positions, {}).front();
  }
  struct Further {
    int64_t steps = 0;
    int64_t sequences = 0;  // of the first step, its first
  };
  // Such a step of the MTP layer and further ones behind it. One of these has a row of each of its
  // sequences: behind the last one it had in the step before, from whose hidden it starts, its
  // token what was chosen there. Every step chooses once for each of them.
  std::span<const Batch> fill_chain(Phase phase, std::span<const SequenceRows> rows,
                                    std::span<const int64_t> positions, const Further& further);
  // The same step, but that the logits of its rows [begin, end) are wanted.
  const Batch& want_logits(int64_t begin, int64_t end);

 private:
  // A batch whose arrays lie behind those that there are.
  Batch lay_out(Phase phase, int64_t rows, int64_t sequences);
  // A sequence's rows of the first step, from `row` on; where they end. `further`: positions that
  // the other steps need.
  int64_t write(const SequenceRows& plan, int64_t index, int64_t row, int64_t begin,
                int64_t further);
  // The step behind `before`, whose choices are numbered from first_choice.
  void write_behind(const Batch& before, int64_t first_choice, Batch& batch);
  int32_t* host(const int32_t* array);
  // Words [begin, end) of memory_ as they are in staging_.
  void upload(int64_t begin, int64_t end);
  void upload_arrays() { upload(table_words(), end_); }
  int64_t table_words() const { return sizes_.sequences * sizes_.pages; }

  Device* device_ = nullptr;
  Sizes sizes_;
  std::vector<Batch> chain_;  // the steps of the last call
  int64_t end_ = 0;           // of their arrays, in words
  // The page table, and behind it the other arrays of the steps one after another: written here,
  // copied to memory_ at the same offsets; and what memory_ holds.
  std::vector<int32_t> staging_, there_;
  Buffer memory_;
};

}  // namespace pewter
