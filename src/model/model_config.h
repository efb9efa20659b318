// ModelConfig: what config.json says of a Qwen3.5 model, checked. Field names follow config.json
// where they can.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/json.h"

namespace pewter {

enum class LayerKind : uint8_t { kDelta, kAttention };  // linear_attention, full_attention

struct ModelConfig {
  std::string model_type;  // qwen3_5_moe, qwen3_5, …
  int64_t hidden_size = 0, layers = 0, vocab_size = 0, max_positions = 0;
  float norm_epsilon = 1e-6f;
  bool tied_embeddings = false;
  std::vector<LayerKind> layer_kinds;  // [layers]

  // Full attention.
  int64_t query_heads = 0, kv_heads = 0, head_dim = 0;
  int64_t rotary_dim = 0;
  double rope_theta = 0;
  std::vector<int32_t>
      rope_axis;  // [rotary_dim / 2] position axis of each frequency: 0 t, 1 h, 2 w

  // Gated DeltaNet.
  int64_t key_heads = 0, value_heads = 0, key_dim = 0, value_dim = 0;

  // Feed-forward: MoE when experts > 0, dense with intermediate_size otherwise.
  int64_t experts = 0, experts_per_token = 0, expert_width = 0, shared_width = 0;
  int64_t intermediate_size = 0;

  int64_t mtp_layers = 0;  // mtp_num_hidden_layers
  std::vector<int32_t>
      eos_token_ids;  // of config.json alone; chat needs generation_config.json's too
  int32_t image_token_id = -1, video_token_id = -1, vision_start_token_id = -1,
          vision_end_token_id = -1;

  bool is_moe() const { return experts > 0; }
  int64_t delta_channels() const { return 2 * key_heads * key_dim + value_heads * value_dim; }
  int64_t delta_in_width() const {
    return delta_channels() + value_heads * value_dim + 2 * value_heads;
  }
  int64_t attention_in_width() const { return (2 * query_heads + 2 * kv_heads) * head_dim; }
  int64_t count(LayerKind kind) const {
    int64_t n = 0;
    for (const LayerKind k : layer_kinds) n += k == kind;
    return n;
  }

  // Reads config.json's object, multimodal (text_config) or text-only. Errors name the key and what
  // is wrong: kCorruptData for impossible values, kUnsupported for what Pewter does not run.
  static Result<ModelConfig> parse(const Json& config);
};

}  // namespace pewter
