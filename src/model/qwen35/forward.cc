#include "model/qwen35/forward.h"

#include <algorithm>
#include <array>
#include <initializer_list>

namespace pewter {
namespace {

// What a feed-forward block reads first, for the mixer before it.
struct FirstWeights {
  std::array<const WeightMatrix*, 5> list{};
  size_t count = 0;
  explicit FirstWeights(std::initializer_list<const WeightMatrix*> matrices)
      : count(matrices.size()) {
    std::copy(matrices.begin(), matrices.end(), list.begin());
  }
  NextWeights span() const { return std::span(list).first(count); }
};
// Of the experts those that do not depend on the routing.
FirstWeights first_of_feed_forward(const LayerWeights& weights) {
  if (weights.mlp) return FirstWeights{&weights.mlp->gate, &weights.mlp->up};
  const MoeWeights& moe = *weights.moe;
  return FirstWeights{&moe.router, &moe.shared_weight, &moe.shared_gate, &moe.shared_up,
                      &moe.shared_down};
}

DeltaMixArgs delta_args(const Qwen35Model& model, int64_t layer, const Batch& batch,
                        const StatePool& pool, const Activations& act) {
  const ModelConfig& config = model.config;
  const auto at = static_cast<size_t>(layer);
  const DeltaWeights& delta = *model.weights.layers[at].delta;
  return {.batch = batch,
          .in = act.delta_in,
          .conv = delta.conv,
          .a_log = delta.a_log,
          .dt_bias = delta.dt_bias,
          .norm = delta.norm,
          .epsilon = config.norm_epsilon,
          .key_heads = config.key_heads,
          .value_heads = config.value_heads,
          .key_dim = config.key_dim,
          .value_dim = config.value_dim,
          .state = pool.recurrent.layer(model.ordinal[at]),
          .out = act.delta_out};
}

void gated_delta_net(Ops& ops, const Qwen35Model& model, int64_t layer, const Batch& batch,
                     const StatePool& pool, Activations& act) {
  const LayerWeights& weights = model.weights.layers[static_cast<size_t>(layer)];
  const DeltaWeights& delta = *weights.delta;
  const WeightMatrix* const in[] = {&delta.in_qkv, &delta.in_z, &delta.in_b, &delta.in_a};
  const FirstWeights next = first_of_feed_forward(weights);
  ops.delta_net({.in = {.x = act.residual,
                        .norm = weights.input_norm,
                        .epsilon = model.config.norm_epsilon,
                        .w = in,
                        .out = act.delta_in},
                 .mix = delta_args(model, layer, batch, pool, act),
                 .out = {.x = act.delta_out,
                         .w = delta.out,
                         .partial = act.partial,
                         .residual = act.residual},
                 .next = next.span()});
}

NormLinearArgs attention_in(const Qwen35Model& model, const LayerWeights& weights,
                            std::span<const WeightMatrix* const> in, const Activations& act) {
  return {.x = act.residual,
          .norm = weights.input_norm,
          .epsilon = model.config.norm_epsilon,
          .w = in,
          .out = act.attention_in};
}

AttentionPrepareArgs attention_prepare(const Qwen35Model& model, const AttentionWeights& attention,
                                       const KvLayer& kv, const Batch& batch,
                                       const Activations& act) {
  const ModelConfig& config = model.config;
  return {.batch = batch,
          .in = act.attention_in,
          .q_norm = attention.q_norm,
          .k_norm = attention.k_norm,
          .epsilon = config.norm_epsilon,
          .query_heads = config.query_heads,
          .kv_heads = config.kv_heads,
          .head_dim = config.head_dim,
          .rotary_dim = config.rotary_dim,
          .inverse_frequency = model.inverse_frequency,
          .axis = model.rope_axis,
          .kv = kv,
          .q = act.attention_q};
}

// Of `going_on`, the first rows of the batch, more than keys and values.
void gated_attention(Ops& ops, const Qwen35Model& model, const LayerWeights& weights,
                     const KvLayer& kv, const Batch& batch, const Batch& going_on,
                     Activations& act) {
  const auto first = [&](const TensorView& t) { return t.first(going_on.rows); };
  const ModelConfig& config = model.config;
  const AttentionWeights& attention = *weights.attention;
  const WeightMatrix* const in[] = {&attention.q, &attention.k, &attention.v};
  const FirstWeights next = first_of_feed_forward(weights);
  ops.attention_net({.in = attention_in(model, weights, in, act),
                     .prepare = attention_prepare(model, attention, kv, batch, act),
                     .attention = {.batch = going_on,
                                   .q = first(act.attention_q),
                                   .in = first(act.attention_in),
                                   .query_heads = config.query_heads,
                                   .kv_heads = config.kv_heads,
                                   .head_dim = config.head_dim,
                                   .kv = kv,
                                   .out = first(act.attention_out)},
                     .out = {.x = first(act.attention_out),
                             .w = attention.out,
                             .partial = first(act.partial),
                             .residual = first(act.residual)},
                     .next = next.span()});
}

void feed_forward(Ops& ops, const Qwen35Model& model, const LayerWeights& weights,
                  Activations& act) {
  const float epsilon = model.config.norm_epsilon;
  if (weights.mlp) {
    const MlpWeights& mlp = *weights.mlp;
    ops.mlp_up({.x = act.residual,
                .norm = weights.post_norm,
                .epsilon = epsilon,
                .gate = mlp.gate,
                .up = mlp.up,
                .out = act.mlp_hidden});
    ops.linear_add(
        {.x = act.mlp_hidden, .w = mlp.down, .partial = act.partial, .residual = act.residual});
    return;
  }
  const MoeWeights& moe = *weights.moe;
  ops.moe({.route = {.x = act.residual,
                     .norm = weights.post_norm,
                     .epsilon = epsilon,
                     .router = moe.router,
                     .shared_gate = moe.shared_weight,
                     .normed = act.normed,
                     .expert = act.expert,
                     .weight = act.expert_weight,
                     .shared_weight = act.shared_weight},
           .up = {.normed = act.normed,
                  .expert = act.expert,
                  .gate = moe.gate,
                  .up = moe.up,
                  .shared_gate = moe.shared_gate,
                  .shared_up = moe.shared_up,
                  .hidden = act.expert_hidden,
                  .shared_hidden = act.shared_hidden},
           .down = {.hidden = act.expert_hidden,
                    .shared_hidden = act.shared_hidden,
                    .expert = act.expert,
                    .weight = act.expert_weight,
                    .shared_weight = act.shared_weight,
                    .down = moe.down,
                    .shared_down = moe.shared_down,
                    .partial = act.partial,
                    .residual = act.residual}});
}

// The MTP layer's residual stream: each row's hidden and the embedding of its next token.
void combine_mtp(Ops& ops, const Qwen35Model& model, const Batch& batch, Activations& act,
                 const ChosenTokens& chosen) {
  const MtpWeights& mtp = *model.weights.mtp;
  ops.embed(
      {.batch = batch, .table = model.weights.embed, .out = act.mtp_embedding, .chosen = chosen});
  ops.mtp_combine({.embedding = act.mtp_embedding,
                   .hidden = act.mtp_hidden,
                   .hidden_rows = batch.hidden_rows,
                   .embedding_norm = mtp.embedding_norm,
                   .hidden_norm = mtp.hidden_norm,
                   .epsilon = model.config.norm_epsilon,
                   .fc = mtp.fc,
                   .out = act.residual});
}

}  // namespace

void run_layer(Ops& ops, const Qwen35Model& model, int64_t layer, const Batch& batch,
               const StatePool& pool, Activations& act) {
  const auto at = static_cast<size_t>(layer);
  const LayerWeights& weights = model.weights.layers[at];
  if (weights.delta)
    gated_delta_net(ops, model, layer, batch, pool, act);
  else
    gated_attention(ops, model, weights, pool.kv.layer(model.ordinal[at]), batch, batch, act);
  feed_forward(ops, model, weights, act);
}

void forward(Ops& ops, const Qwen35Model& model, const Batch& batch, const StatePool& pool,
             Activations& act, const ChosenTokens& chosen) {
  ops.embed({.batch = batch, .table = model.weights.embed, .out = act.residual, .chosen = chosen});
  for (int64_t layer = 0; layer < model.config.layers; ++layer) {
    run_layer(ops, model, layer, batch, pool, act);
    for (size_t tap = 0; tap < model.taps.size(); ++tap)
      if (model.taps[tap] == layer) ops.copy({.from = act.residual, .to = act.taps[tap]});
  }
  ops.final_norm({.x = act.residual,
                  .norm = model.weights.norm,
                  .epsilon = model.config.norm_epsilon,
                  .out = act.hidden});
  if (batch.logits_count > 0)
    ops.logits(
        {.batch = batch, .hidden = act.hidden, .head = model.weights.head, .out = act.logits});
}

void forward_mtp(Ops& ops, const Qwen35Model& model, const Batch& batch, const StatePool& pool,
                 Activations& act, const ChosenTokens& chosen, const Batch* drafting) {
  const MtpWeights& mtp = *model.weights.mtp;
  const Batch& going_on = drafting != nullptr ? *drafting : batch;
  combine_mtp(ops, model, batch, act, chosen);
  gated_attention(ops, model, mtp.layer, pool.kv.layer(model.mtp_kv_layer()), batch, going_on, act);
  act.narrow(going_on.rows, going_on.logits_count, act);
  feed_forward(ops, model, mtp.layer, act);
  ops.final_norm({.x = act.residual,
                  .norm = mtp.norm,
                  .epsilon = model.config.norm_epsilon,
                  .out = act.hidden});
  if (going_on.logits_count == 0) return;
  ops.logits({.batch = going_on,
              .hidden = act.hidden,
              .head = model.weights.drafting_head(),
              .out = act.logits});
}

void fill_mtp(Ops& ops, const Qwen35Model& model, const Batch& batch, const StatePool& pool,
              Activations& act) {
  const LayerWeights& layer = model.weights.mtp->layer;
  const AttentionWeights& attention = *layer.attention;
  const ModelConfig& config = model.config;
  const WeightMatrix* const in[] = {&attention.k, &attention.v};
  combine_mtp(ops, model, batch, act, {});
  NormLinearArgs project = attention_in(model, layer, in, act);
  project.out = TensorView(act.attention_in.data(), act.attention_in.dtype(),
                           {batch.rows, 2 * config.kv_heads * config.head_dim});
  ops.norm_linear(project);
  AttentionPrepareArgs prepare =
      attention_prepare(model, attention, pool.kv.layer(model.mtp_kv_layer()), batch, act);
  prepare.in = project.out;
  prepare.query_heads = 0;
  ops.attention_prepare(prepare);
}

void fold_slot(Ops& ops, const Qwen35Model& model, const StatePool& pool, int32_t slot,
               int64_t accepted) {
  const Batch none;
  const Activations nothing;
  for (int64_t layer = 0; layer < model.config.layers; ++layer)
    if (model.config.layer_kinds[static_cast<size_t>(layer)] == LayerKind::kDelta)
      ops.fold(delta_args(model, layer, none, pool, nothing), slot, accepted);
}

}  // namespace pewter
