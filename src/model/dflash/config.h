// DflashConfig: what the config.json of a DFlash drafter says, checked, also against the model it
// drafts for. Keys: docs/speculation.md.
#pragma once

#include "model/model_config.h"

namespace pewter {

struct DflashLayerKind {
  // Positions a row sees, itself included; 0: all. Where rows see what comes after them in the
  // block, they share the window of its last row, so that the first one sees as many fewer of the
  // oldest.
  int64_t window = 0;
  bool causal = false;  // within the block
};

struct DflashConfig {
  int64_t hidden_size = 0, layers = 0, intermediate_size = 0;
  int64_t query_heads = 0, kv_heads = 0, head_dim = 0;
  float norm_epsilon = 1e-6f;
  double rope_theta = 0;
  int64_t max_positions = 0;
  int64_t block_size = 0;  // rows of a draft: the last token and block_size - 1 guesses
  int32_t mask_token_id = -1;
  std::vector<int64_t> taps;  // layers of the target whose output it reads, in this order
  std::vector<DflashLayerKind> layer_kinds;
  int64_t vocab_size = 0, target_layers = 0;  // 0: not said

  int64_t most_drafts() const { return block_size - 1; }
  int64_t query_width() const { return query_heads * head_dim; }
  int64_t kv_width() const { return kv_heads * head_dim; }

  // Errors name the key: kCorruptData for impossible values, kUnsupported for what is not run here,
  // unknown keys of dflash_config among it.
  static Result<DflashConfig> parse(const Json& config);
  // Error: kInvalidArgument when it was made for another model.
  Status check_target(const ModelConfig& target) const;
};

}  // namespace pewter
