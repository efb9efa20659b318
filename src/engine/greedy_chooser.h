// GreedyChooser: the likeliest token of every row of logits, for drafters. Unlike StepSampler it
// has nothing to send per step: its op is enqueued with the logits', and may be recorded with them.
#pragma once

#include "backend/ops.h"
#include "tensor/buffer.h"

namespace pewter {

class GreedyChooser {
 public:
  // Of at most so many rows of logits, ids below vocab_limit. device and ops outlive it. Error:
  // kResourceExhausted.
  static Result<GreedyChooser> make(Device& device, Ops& ops, int64_t rows, int64_t vocab_limit);

  // Enqueues the choice of every row of logits.
  void choose(const TensorView& logits) const;
  // Waits for the last choice of so many rows: their tokens, -1 where logits are not finite. Valid
  // until the next call.
  std::span<const int32_t> tokens(int64_t rows);

 private:
  GreedyChooser(Device& device, Ops& ops) : device_(&device), ops_(&ops) {}

  Device* device_;
  Ops* ops_;
  int64_t vocab_limit_ = 0;
  // On the device: [rows] parameters, [rows + 1] zeros for where edits begin, one edit that no row
  // has; tokens, and what the op says besides.
  Buffer parameters_, edit_begin_, no_edits_, results_;
  std::vector<int32_t> tokens_;
};

}  // namespace pewter
