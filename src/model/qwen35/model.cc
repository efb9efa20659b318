#include "model/qwen35/model.h"

#include <algorithm>
#include <cmath>

namespace pewter {

Result<Qwen35Model> Qwen35Model::make(Device& device, ModelConfig config, ModelWeights weights) {
  Qwen35Model model;
  std::array<int64_t, 2> seen{};
  for (const LayerKind kind : config.layer_kinds)
    model.ordinal.push_back(seen[static_cast<size_t>(kind)]++);

  const int64_t half = config.rotary_dim / 2;
  std::vector<float> frequency(static_cast<size_t>(half));
  for (int64_t i = 0; i < half; ++i)
    frequency[static_cast<size_t>(i)] = static_cast<float>(std::pow(
        config.rope_theta, -2.0 * static_cast<double>(i) / static_cast<double>(config.rotary_dim)));
  TRY_ASSIGN(model.tables, device.allocate(half * 8));
  device.copy_to_device(model.tables.data(), std::as_bytes(std::span(frequency)));
  device.copy_to_device(model.tables.data() + half * 4, std::as_bytes(std::span(config.rope_axis)));
  model.inverse_frequency = {model.tables.data(), DType::kF32, {half}};
  model.rope_axis = reinterpret_cast<const int32_t*>(model.tables.data() + half * 4);
  model.config = std::move(config);
  model.weights = std::move(weights);
  return model;
}

OpsLimits Qwen35Model::limits(int64_t rows, int64_t sequences, int64_t logits_rows) const {
  const ModelConfig& c = config;
  return {.rows = rows,
          .sequences = sequences,
          .logits_rows = logits_rows,
          .widest_input =
              std::max({2 * c.hidden_size, c.value_heads * c.value_dim, c.query_heads * c.head_dim,
                        c.intermediate_size, c.expert_width, c.shared_width}),
          .widest_output = std::max({c.vocab_size, c.hidden_size, c.delta_in_width(),
                                     c.attention_in_width(), c.intermediate_size}),
          .experts = c.experts,
          .top_k = c.experts_per_token,
          .expert_width = c.expert_width,
          .shared_width = c.shared_width,
          .delta_channels = c.delta_channels(),
          .key_heads = c.key_heads,
          .value_heads = c.value_heads,
          .key_dim = c.key_dim,
          .value_dim = c.value_dim,
          .query_heads = c.query_heads,
          .kv_heads = c.kv_heads,
          .head_dim = c.head_dim};
}

}  // namespace pewter
