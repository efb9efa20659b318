// Qwen35Model: a checkpoint's config and weights on a device, and the small tables the layers
// share.
#pragma once

#include "backend/ops.h"
#include "model/qwen35/weights.h"

namespace pewter {

struct Qwen35Model {
  ModelConfig config;
  ModelWeights weights;
  TensorView inverse_frequency;        // [rotary_dim / 2] f32: θ^(−2i / rotary_dim)
  const int32_t* rope_axis = nullptr;  // [rotary_dim / 2] on the device
  std::vector<int64_t> ordinal;        // [layers] index of a layer among those of its kind
  std::vector<int64_t> taps;           // layers whose residual is kept for drafters, in this order
  Buffer tables;

  static Result<Qwen35Model> make(Device& device, ModelConfig config, ModelWeights weights);

  // Full-attention layers with a cache of their own: the model's and, last, the MTP layer's.
  int64_t kv_layers() const { return config.count(LayerKind::kAttention) + (weights.mtp ? 1 : 0); }
  int64_t mtp_kv_layer() const { return config.count(LayerKind::kAttention); }
  OpsLimits limits(int64_t rows, int64_t sequences, int64_t logits_rows) const;
};

}  // namespace pewter
