// GreedyChooser: the likeliest token of every row of logits, for drafters. Unlike StepSampler it
// has nothing to send per step. Choices of several steps gather on the device, where a later step
// may go on from them, and are read together.
#pragma once

#include "backend/ops.h"
#include "tensor/buffer.h"

namespace pewter {

class GreedyChooser {
 public:
  struct Options {
    int64_t rows = 1;                   // of logits at a time, at most
    int64_t choices = 1;                // between two calls of tokens(), at most
    int64_t vocab_limit = 0;            // columns from here on are never chosen
    std::span<const int32_t> ids = {};  // the token that each column stands for; empty: itself
  };
  // device and ops outlive it. Error: kResourceExhausted.
  static Result<GreedyChooser> make(Device& device, Ops& ops, const Options& options);

  // Enqueues the choice of every row of logits.
  void choose(const TensorView& logits);
  // Choices since the last tokens(), and where they are for ops enqueued behind them.
  int64_t count() const { return count_; }
  const ChosenTokens& chosen() const { return chosen_; }
  // Waits for them: their tokens in order, -1 where logits are not finite. Valid until the next
  // call.
  std::span<const int32_t> tokens();

 private:
  GreedyChooser(Device& device, Ops& ops) : device_(&device), ops_(&ops) {}

  Device* device_;
  Ops* ops_;
  int64_t vocab_limit_ = 0, rows_ = 0, count_ = 0;
  std::vector<int32_t> ids_, tokens_;
  // On the device: [rows] parameters, [rows + 1] zeros for where edits begin, one edit that no row
  // has; choices and ids; what the op says of a row besides.
  Buffer parameters_, edit_begin_, no_edits_, choices_, ids_there_, besides_;
  ChosenTokens chosen_;
};

}  // namespace pewter
