// The weights of a Qwen3.5 model on a device, as forward.cc uses them. Loaded by load_weights
// (load.h).
#pragma once

#include <optional>
#include <span>
#include <vector>

#include "model/model_config.h"
#include "tensor/weight_matrix.h"

namespace pewter {

struct DeltaWeights {
  WeightMatrix in_qkv, in_z, in_b, in_a;  // [2·Hk·dk + Hv·dv, H], [Hv·dv, H], [Hv, H] twice
  WeightMatrix out;                       // [H, Hv·dv]
  TensorView conv;                        // [channels, 4] f32
  TensorView a_log, dt_bias;              // [Hv] f32
  TensorView norm;                        // [dv] f32, plain
};

struct AttentionWeights {
  WeightMatrix q, k, v;       // [2·Nq·D, H] (query and gate per head), [Nkv·D, H] twice
  WeightMatrix out;           // [H, Nq·D]
  TensorView q_norm, k_norm;  // [D] f32
};

struct MoeWeights {
  WeightMatrix router;          // [E, H]
  WeightMatrix gate, up, down;  // E of [I, H], [I, H], [H, I]
  WeightMatrix shared_weight;   // [1, H]: the shared expert's gate
  WeightMatrix shared_gate, shared_up, shared_down;
};

struct MlpWeights {
  WeightMatrix gate, up, down;  // [I, H], [I, H], [H, I]
};

struct LayerWeights {
  TensorView input_norm, post_norm;   // [H] f32
  std::optional<DeltaWeights> delta;  // exactly one of these two
  std::optional<AttentionWeights> attention;
  std::optional<MoeWeights> moe;  // exactly one of these two
  std::optional<MlpWeights> mlp;
};

struct MtpWeights {
  WeightMatrix fc;                               // [H, 2H]: embedding half first
  TensorView embedding_norm, hidden_norm, norm;  // [H] f32
  LayerWeights layer;                            // always full attention
};

// A head for drafts alone: some rows of the model's, so that a guess reads less. The model verifies
// with all of its own, so that a token that is not among them costs a guess and no more.
struct DraftHead {
  WeightMatrix rows;         // [N, H]
  std::vector<int32_t> ids;  // [N] token of each row; empty: row i is token i
};

struct ModelWeights {
  WeightMatrix embed;  // [V, H]
  WeightMatrix head;   // [V, H]; embed itself when tied, unless it is an int8 copy
  TensorView norm;     // [H] f32
  std::vector<LayerWeights> layers;
  std::optional<MtpWeights> mtp;
  std::optional<DraftHead> draft_head;  // what drafters choose from; none: all of `head`
  std::vector<Buffer> vectors;          // what the f32 views above point into

  const WeightMatrix& drafting_head() const { return draft_head ? draft_head->rows : head; }
  // The tokens of its rows; empty: row i is token i.
  std::span<const int32_t> drafted_ids() const {
    return draft_head ? std::span<const int32_t>(draft_head->ids) : std::span<const int32_t>();
  }
};

}  // namespace pewter
