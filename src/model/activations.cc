#include "model/activations.h"

#include <algorithm>

namespace pewter {

void Activations::narrow(int64_t rows, int64_t logits_rows, Activations& to) const {
  const auto first = [rows](const TensorView& t) { return t.defined() ? t.first(rows) : t; };
  to.residual = first(residual);
  to.partial = first(partial);
  to.delta_in = first(delta_in);
  to.delta_out = first(delta_out);
  to.attention_in = first(attention_in);
  to.attention_q = first(attention_q);
  to.attention_out = first(attention_out);
  to.normed = first(normed);
  to.expert = first(expert);
  to.expert_weight = first(expert_weight);
  to.shared_weight = first(shared_weight);
  to.expert_hidden = first(expert_hidden);
  to.shared_hidden = first(shared_hidden);
  to.mlp_hidden = first(mlp_hidden);
  to.hidden = first(hidden);
  to.mtp_embedding = first(mtp_embedding);
  to.mtp_hidden = first(mtp_hidden);
  to.logits = logits.first(logits_rows);
  to.taps.resize(taps.size());
  for (size_t i = 0; i < taps.size(); ++i) to.taps[i] = first(taps[i]);
}

int64_t ActivationStore::bytes_of(const ModelConfig& config, DType activation, Sizes sizes) {
  return lay_out(nullptr, config, activation, sizes)->bytes;
}

Result<ActivationStore> ActivationStore::make(Device& device, const ModelConfig& config,
                                              DType activation, Sizes sizes) {
  return lay_out(&device, config, activation, sizes);
}

Result<ActivationStore> ActivationStore::lay_out(Device* device, const ModelConfig& config,
                                                 DType activation, Sizes sizes) {
  ActivationStore store;
  const int64_t m = sizes.rows, hidden = config.hidden_size, top_k = config.experts_per_token;
  // A new buffer of the largest of these shapes' bytes.
  const auto allocate = [&](int64_t bytes) -> Result<std::byte*> {
    store.bytes += bytes;
    if (device == nullptr) return nullptr;
    TRY_ASSIGN(Buffer buffer, device->allocate(bytes));
    store.buffers.push_back(std::move(buffer));
    return store.buffers.back().data();
  };
  const int64_t act = dtype_bytes(activation);
  const int64_t delta_out = config.value_heads * config.value_dim,
                q_width = config.query_heads * config.head_dim;

  const int64_t in_width = std::max(config.delta_in_width(), config.attention_in_width());
  TRY_ASSIGN(std::byte* const mixer_in, allocate(m * in_width * act));
  TRY_ASSIGN(std::byte* const mixer_out, allocate(m * std::max(delta_out, q_width) * act));
  TRY_ASSIGN(std::byte* const q, allocate(m * q_width * act));
  TRY_ASSIGN(std::byte* const residual, allocate(m * hidden * 4));
  TRY_ASSIGN(std::byte* const partial, allocate(m * hidden * 4));
  TRY_ASSIGN(std::byte* const hidden_rows, allocate(m * hidden * act));
  TRY_ASSIGN(std::byte* const logits, allocate(sizes.logits_rows * config.vocab_size * 4));
  Activations& a = store.all;
  a.delta_in = {mixer_in, activation, {m, config.delta_in_width()}};
  a.attention_in = {mixer_in, activation, {m, config.attention_in_width()}};
  a.delta_out = {mixer_out, activation, {m, delta_out}};
  a.attention_out = {mixer_out, activation, {m, q_width}};
  a.attention_q = {q, activation, {m, q_width}};
  a.residual = {residual, DType::kF32, {m, hidden}};
  a.partial = {partial, DType::kF32, {m, hidden}};
  a.hidden = {hidden_rows, activation, {m, hidden}};
  a.logits = {logits, DType::kF32, {sizes.logits_rows, config.vocab_size}};

  if (config.is_moe()) {
    TRY_ASSIGN(std::byte* const normed, allocate(m * hidden * act));
    TRY_ASSIGN(std::byte* const routing, allocate(m * (2 * top_k + 1) * 4));
    TRY_ASSIGN(std::byte* const routed, allocate(m * top_k * config.expert_width * act));
    TRY_ASSIGN(std::byte* const shared, allocate(m * config.shared_width * act));
    a.normed = {normed, activation, {m, hidden}};
    a.expert = {routing, DType::kI32, {m, top_k}};
    const auto behind = [routing](int64_t bytes) {  // null where sizes alone are asked for
      return routing != nullptr ? routing + bytes : nullptr;
    };
    a.expert_weight = {behind(m * top_k * 4), DType::kF32, {m, top_k}};
    a.shared_weight = {behind(m * top_k * 8), DType::kF32, {m}};
    a.expert_hidden = {routed, activation, {m, top_k, config.expert_width}};
    a.shared_hidden = {shared, activation, {m, config.shared_width}};
  } else {
    TRY_ASSIGN(std::byte* const mlp, allocate(m * config.intermediate_size * act));
    a.mlp_hidden = {mlp, activation, {m, config.intermediate_size}};
  }
  if (config.mtp_layers > 0) {
    TRY_ASSIGN(std::byte* const embedding, allocate(m * hidden * 4));
    TRY_ASSIGN(std::byte* const target, allocate(m * hidden * act));
    a.mtp_embedding = {embedding, DType::kF32, {m, hidden}};
    a.mtp_hidden = {target, activation, {m, hidden}};
  }
  for (int64_t i = 0; i < sizes.taps; ++i) {
    TRY_ASSIGN(std::byte* const tap, allocate(m * hidden * 4));
    a.taps.emplace_back(tap, DType::kF32, std::initializer_list<int64_t>{m, hidden});
  }
  return store;
}

}  // namespace pewter
