// The passes of a DFlash drafter, written against Ops.
//
//   context   what the target has committed: the tapped layers' outputs, through fc and a norm,
//   give
//             keys and values of every layer. No queries, no MLP.
//   block     the last token and masks in its stead for each guess, embedded by the target:
//   ordinary
//             attention and MLP layers over context and block; the target's head turns row i into
//             guess i. All guesses at once.
//
// Source: DFlash: Block Diffusion for Flash Speculative Decoding (z-lab), and the reference of the
// published drafters; formulas in docs/speculation.md.
#pragma once

#include "model/dflash/model.h"
#include "model/kv_cache.h"

namespace pewter {

struct DflashActivations {
  std::vector<TensorView> taps;  // [m, H] act, for each tap
  TensorView features;           // [m, H] f32: fc of the taps
  TensorView partial;            // [m, H] f32
  TensorView residual;           // [m, H] f32
  TensorView context_in;         // [m, 2·Nkv·D] act
  TensorView attention_in;       // [m, 2·Nq·D + 2·Nkv·D] act
  TensorView gates;              // [m, 2·Nq·D] act, all kOpenGate
  TensorView q, attention_out;   // [m, Nq·D] act
  TensorView mlp;                // [m, I] act
  TensorView hidden;             // [m, H] act, after the last norm

  struct Sizes {
    int64_t context_rows = 0, block_rows = 0;
  };
  // Places them in memory and returns their bytes; of null memory the bytes alone.
  int64_t lay_out(const DflashConfig& config, DType activation, Sizes sizes, std::byte* memory);
};

// Rows of one tapped layer's output, f32, as activations.
void take_tap(Ops& ops, const DflashModel& model, const TensorView& residual,
              const TensorView& out);
// Keys and values of the batch's rows, whose taps are the first rows of act.taps.
void fill_dflash(Ops& ops, const DflashModel& model, const Batch& batch, const KvCache& kv,
                 const DflashActivations& act);

// The target's.
struct TargetEnds {
  const WeightMatrix& embed;
  const WeightMatrix& head;
};
// The rows of a step of drafting.
struct DflashBlocks {
  // Each sequence's last token and its masks, at the positions from its committed length on; wants
  // logits of the masks.
  const Batch& block;
  // The same rows each as a sequence that ends where its block does: what rows see in layers that
  // are not causal.
  const Batch& whole_block;
  bool slides = true;  // false: no window of the drafter's is shorter than what its rows see
};
// Afterwards act.hidden holds all rows, logits those of the masks.
void draft_dflash(Ops& ops, const DflashModel& model, const DflashBlocks& blocks,
                  const TargetEnds& target, const KvCache& kv, const DflashActivations& act,
                  const TensorView& logits);

}  // namespace pewter
