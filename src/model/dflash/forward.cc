#include "model/dflash/forward.h"

namespace pewter {
namespace {

AttentionPrepareArgs prepare_args(const DflashModel& model, const DflashLayer& layer,
                                  const Batch& batch, const KvLayer& kv) {
  const DflashConfig& config = model.config;
  return {.batch = batch,
          .q_norm = layer.q_norm,
          .k_norm = layer.k_norm,
          .epsilon = config.norm_epsilon,
          .kv_heads = config.kv_heads,
          .head_dim = config.head_dim,
          .rotary_dim = config.head_dim,
          .inverse_frequency = model.inverse_frequency,
          .axis = model.axis,
          .kv = kv};
}

void attention(Ops& ops, const DflashModel& model, size_t index, const DflashBlocks& blocks,
               const KvLayer& kv, const DflashActivations& act) {
  const DflashConfig& config = model.config;
  const DflashLayer& layer = model.layers[index];
  const DflashLayerKind& kind = config.layer_kinds[index];
  const int64_t m = blocks.block.rows;
  const WeightMatrix* const in[] = {&layer.q, &layer.k, &layer.v};
  ops.norm_linear({.x = act.residual.first(m),
                   .norm = layer.input_norm,
                   .epsilon = config.norm_epsilon,
                   .w = in,
                   .out = act.attention_in.first(m)});
  AttentionPrepareArgs prepare = prepare_args(model, layer, blocks.block, kv);
  prepare.in = act.attention_in.first(m);
  prepare.query_heads = config.query_heads;
  prepare.q = act.q.first(m);
  ops.attention_prepare(prepare);
  ops.attention({.batch = kind.causal ? blocks.block : blocks.whole_block,
                 .q = act.q.first(m),
                 .in = act.gates.first(m),
                 .query_heads = config.query_heads,
                 .kv_heads = config.kv_heads,
                 .head_dim = config.head_dim,
                 .kv = kv,
                 .out = act.attention_out.first(m),
                 .window = blocks.slides ? kind.window : 0});
  ops.linear_add({.x = act.attention_out.first(m),
                  .w = layer.out,
                  .partial = act.partial.first(m),
                  .residual = act.residual.first(m)});
}

void feed_forward(Ops& ops, const DflashModel& model, const DflashLayer& layer, int64_t m,
                  const DflashActivations& act) {
  ops.mlp_up({.x = act.residual.first(m),
              .norm = layer.post_norm,
              .epsilon = model.config.norm_epsilon,
              .gate = layer.gate,
              .up = layer.up,
              .out = act.mlp.first(m)});
  ops.linear_add({.x = act.mlp.first(m),
                  .w = layer.down,
                  .partial = act.partial.first(m),
                  .residual = act.residual.first(m)});
}

}  // namespace

int64_t DflashActivations::lay_out(const DflashConfig& c, DType activation, Sizes sizes,
                                   std::byte* memory) {
  int64_t bytes = 0;
  const auto take = [&](DType dtype, int64_t rows, int64_t width) {
    const TensorView view(memory == nullptr ? nullptr : memory + bytes, dtype, {rows, width});
    bytes += (view.bytes() + 255) / 256 * 256;
    return view;
  };
  const int64_t context = sizes.context_rows, block = sizes.block_rows;
  const int64_t most = std::max(context, block);
  taps.clear();
  for (size_t i = 0; i < c.taps.size(); ++i)
    taps.push_back(take(activation, context, c.hidden_size));
  features = take(DType::kF32, context, c.hidden_size);
  partial = take(DType::kF32, most, c.hidden_size);
  context_in = take(activation, context, 2 * c.kv_width());
  residual = take(DType::kF32, block, c.hidden_size);
  attention_in = take(activation, block, 2 * c.query_width() + 2 * c.kv_width());
  gates = take(activation, block, 2 * c.query_width());
  q = take(activation, block, c.query_width());
  attention_out = take(activation, block, c.query_width());
  mlp = take(activation, block, c.intermediate_size);
  hidden = take(activation, block, c.hidden_size);
  return bytes;
}

void take_tap(Ops& ops, const DflashModel& model, const TensorView& residual,
              const TensorView& out) {
  ops.final_norm({.x = residual,
                  .norm = model.identity_norm,
                  .epsilon = DflashModel::kIdentityEpsilon,
                  .out = out});
}

void fill_dflash(Ops& ops, const DflashModel& model, const Batch& batch, const KvCache& kv,
                 const DflashActivations& act) {
  const int64_t m = batch.rows;
  const TensorView features = act.features.first(m);
  for (size_t i = 0; i < model.fc.size(); ++i)
    ops.linear_add({.x = act.taps[i].first(m),
                    .w = model.fc[i],
                    .partial = i == 0 ? features : act.partial.first(m),
                    .residual = i == 0 ? TensorView() : features});
  for (size_t i = 0; i < model.layers.size(); ++i) {
    const DflashLayer& layer = model.layers[i];
    const WeightMatrix* const in[] = {&layer.k, &layer.v};
    ops.norm_linear({.x = features,
                     .norm = model.hidden_norm,
                     .epsilon = model.config.norm_epsilon,
                     .w = in,
                     .out = act.context_in.first(m)});
    AttentionPrepareArgs prepare =
        prepare_args(model, layer, batch, kv.layer(static_cast<int64_t>(i)));
    prepare.in = act.context_in.first(m);
    prepare.q = act.context_in.first(m);  // no query head writes there
    ops.attention_prepare(prepare);
  }
}

void draft_dflash(Ops& ops, const DflashModel& model, const DflashBlocks& blocks,
                  const TargetEnds& target, const KvCache& kv, const DflashActivations& act,
                  const TensorView& logits) {
  const Batch& block = blocks.block;
  const int64_t m = block.rows;
  ops.embed({.batch = block, .table = target.embed, .out = act.residual.first(m)});
  for (size_t i = 0; i < model.layers.size(); ++i) {
    attention(ops, model, i, blocks, kv.layer(static_cast<int64_t>(i)), act);
    feed_forward(ops, model, model.layers[i], m, act);
  }
  ops.final_norm({.x = act.residual.first(m),
                  .norm = model.norm,
                  .epsilon = model.config.norm_epsilon,
                  .out = act.hidden.first(m)});
  ops.logits({.batch = block, .hidden = act.hidden.first(m), .head = target.head, .out = logits});
}

}  // namespace pewter
