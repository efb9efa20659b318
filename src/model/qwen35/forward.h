// The forward pass of a Qwen3.5 model, written once against Ops. Each layer is two lines:
//   residual += mixer(norm(residual))          gated DeltaNet or gated attention
//   residual += feed_forward(norm(residual))   mixture of experts or dense MLP
#pragma once

#include "model/activations.h"
#include "model/qwen35/model.h"
#include "model/state_pool.h"

namespace pewter {

// Runs the batch through all layers. Afterwards act.hidden holds the final-norm hidden of every
// row, act.taps the residual after each of model.taps, act.logits the logits of batch.logits_rows.
// act is already narrowed to the batch's rows. Tokens may be choices, in `chosen`.
void forward(Ops& ops, const Qwen35Model& model, const Batch& batch, const StatePool& pool,
             Activations& act, const ChosenTokens& chosen = {});

// One layer on act.residual; forward is these in turn.
void run_layer(Ops& ops, const Qwen35Model& model, int64_t layer, const Batch& batch,
               const StatePool& pool, Activations& act);

// The multi-token-prediction layer on act.mtp_hidden (the final-norm hidden of each row's position,
// the target's or its own, in batch.hidden_rows) and the batch's tokens (each row's *next* token;
// `chosen`: where they may be choices). Afterwards act.hidden, in which act.mtp_hidden may lie,
// holds its output, act.logits the draft logits of batch.logits_rows, as wide as drafting_head().
// Its keys and values go to the KV layer after the model's own. `drafting`: the batch of its first
// rows and sequences, if only those go on behind their keys and values; act is then cut to them.
void forward_mtp(Ops& ops, const Qwen35Model& model, const Batch& batch, const StatePool& pool,
                 Activations& act, const ChosenTokens& chosen = {},
                 const Batch* drafting = nullptr);
// Only its keys and values, for rows that nothing is drafted from; act.hidden stays.
void fill_mtp(Ops& ops, const Qwen35Model& model, const Batch& batch, const StatePool& pool,
              Activations& act);

// Applies a slot's accepted tape rows to its state in every Gated DeltaNet layer.
void fold_slot(Ops& ops, const Qwen35Model& model, const StatePool& pool, int32_t slot,
               int64_t accepted);

}  // namespace pewter
