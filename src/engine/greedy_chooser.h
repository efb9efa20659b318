// GreedyChooser: the likeliest token of every row of logits, for drafters. Unlike StepSampler it
// has nothing to send per step, so that choosing may be part of a recorded one. Choices of several
// steps gather on the device, where a later step may go on from them, and are read together.
#pragma once

#include "backend/ops.h"
#include "tensor/buffer.h"

namespace pewter {

class GreedyChooser {
 public:
  struct Options {
    int64_t rows = 1;                   // of logits at a time, at most
    int64_t choices = 1;                // that are read together, at most
    int64_t vocab_limit = 0;            // columns from here on are never chosen
    std::span<const int32_t> ids = {};  // the token that each column stands for; empty: itself
  };
  // device and ops outlive it. Error: kResourceExhausted.
  static Result<GreedyChooser> make(Device& device, Ops& ops, const Options& options);

  // Enqueues the choice of every row of logits: choices number `first` and on.
  void choose(const TensorView& logits, int64_t first);
  // Where they are for ops enqueued behind them.
  const ChosenTokens& chosen() const { return chosen_; }
  // Enqueues the reading of the first `count` choices.
  void read(int64_t count);
  // Waits for them: their tokens, -1 where logits are not finite. Valid until the next read().
  std::span<const int32_t> tokens();
  // What ops take such a choice for.
  int32_t token_for_none() const { return ids_.empty() ? 0 : ids_[0]; }
  // Of this chooser alone, for those who keep its addresses.
  uint64_t id() const { return id_; }

 private:
  GreedyChooser(Device& device, Ops& ops) : device_(&device), ops_(&ops) {}

  Device* device_;
  Ops* ops_;
  uint64_t id_ = 0;
  int64_t vocab_limit_ = 0, rows_ = 0;
  std::vector<int32_t> ids_, tokens_;
  int64_t reading_ = 0;
  HostCopy copy_;
  // On the device: [rows] parameters, [rows + 1] zeros for where edits begin, one edit that no row
  // has; choices and ids; what the op says of a row besides.
  Buffer parameters_, edit_begin_, no_edits_, choices_, ids_there_, besides_;
  ChosenTokens chosen_;
};

}  // namespace pewter
