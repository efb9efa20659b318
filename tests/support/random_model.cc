#include "support/random_model.h"

#include <cmath>

#include "base/rng.h"
#include "tensor/formats/fp8_block128.h"
#include "tensor/formats/int4_group128.h"
#include "tensor/formats/int8_row.h"

namespace pewter::test {
namespace {

// Fills matrix 0 of a canonical stack of one.
void encode(const std::vector<float>& values, WeightMatrix& w) {
  switch (w.format) {
    case WeightFormat::kFp8Block128:
      return encode_fp8(values.data(), w, 0);
    case WeightFormat::kInt4Group128:
      return encode_int4(values.data(), w, 0);
    case WeightFormat::kInt8Row:
      return encode_int8(values.data(), w, 0);
    case WeightFormat::kF32:
    case WeightFormat::kBF16:
      for (size_t i = 0; i < values.size(); ++i)
        store_float(w.values.data(), w.values.dtype(), static_cast<int64_t>(i), values[i]);
      return;
    case WeightFormat::kF16:
      CHECK(false, "random f16 matrices are not made");
  }
}

// Makes the parts of one model in a fixed order, so that the same seed gives the same weights.
class Maker {
 public:
  Maker(Device& device, const ModelConfig& config, const RandomFormats& formats, uint64_t seed)
      : device_(device), config_(config), formats_(formats), rng_(seed) {}

  Result<ModelWeights> weights();

 private:
  struct Shape {
    int64_t n = 0, k = 0, count = 1;
  };
  // Normal values of variance 1/k: an output of unit inputs has unit variance.
  Result<WeightMatrix> matrix(WeightFormat format, Shape shape);
  template <typename F>
  Result<TensorView> vector(std::initializer_list<int64_t> shape, const F& value);
  // The (1 + w) norms.
  Result<TensorView> norm(int64_t n) {
    return vector({n}, [this] { return rng_.uniform(-0.3f, 0.3f); });
  }
  Result<DeltaWeights> delta();
  Result<AttentionWeights> attention();
  Result<MoeWeights> moe();
  Result<MlpWeights> mlp();
  Result<LayerWeights> layer(LayerKind kind);
  Result<MtpWeights> mtp();

  Device& device_;
  const ModelConfig& config_;
  const RandomFormats& formats_;
  Rng rng_;
  std::vector<Buffer> vectors_;
};

Result<WeightMatrix> Maker::matrix(WeightFormat format, Shape shape) {
  WeightSpec spec{.format = format,
                  .n = shape.n,
                  .k = shape.k,
                  .count = shape.count,
                  .scale_dtype = formats_.scale_dtype,
                  .has_zeros = formats_.zeros && format == WeightFormat::kInt4Group128};
  TRY_ASSIGN(WeightMatrix w, device_.make_weight(spec));
  spec.count = 1;
  const float scale = 1.0f / std::sqrt(static_cast<float>(shape.k));
  std::vector<float> values(static_cast<size_t>(shape.n * shape.k));
  for (int64_t index = 0; index < shape.count; ++index) {
    for (float& value : values) value = scale * rng_.normal();
    TRY_ASSIGN(WeightMatrix rows, make_canonical_weight(spec));
    encode(values, rows);
    device_.store_rows(w, index, 0, rows);
  }
  return w;
}

template <typename F>
Result<TensorView> Maker::vector(std::initializer_list<int64_t> shape, const F& value) {
  const int64_t count = TensorView(nullptr, DType::kF32, shape).elements();
  std::vector<float> values(static_cast<size_t>(count));
  for (float& x : values) x = value();
  TRY_ASSIGN(Buffer buffer, device_.allocate(count * 4));
  device_.copy_to_device(buffer.data(), std::as_bytes(std::span(values)));
  vectors_.push_back(std::move(buffer));
  return TensorView(vectors_.back().data(), DType::kF32, shape);
}

Result<DeltaWeights> Maker::delta() {
  const int64_t hidden = config_.hidden_size, heads = config_.value_heads,
                width = heads * config_.value_dim, channels = config_.delta_channels();
  DeltaWeights w;
  TRY_ASSIGN(w.in_qkv, matrix(formats_.mixer, {channels, hidden}));
  TRY_ASSIGN(w.in_z, matrix(formats_.mixer, {width, hidden}));
  TRY_ASSIGN(w.in_b, matrix(WeightFormat::kBF16, {heads, hidden}));
  TRY_ASSIGN(w.in_a, matrix(WeightFormat::kBF16, {heads, hidden}));
  TRY_ASSIGN(w.out, matrix(formats_.mixer, {hidden, width}));
  TRY_ASSIGN(w.conv, vector({channels, 4}, [this] { return 0.5f * rng_.normal(); }));
  // Decays from almost none to almost all, so that old tokens matter in some heads.
  TRY_ASSIGN(w.a_log, vector({heads}, [this] { return std::log(rng_.uniform(0.02f, 2.0f)); }));
  TRY_ASSIGN(w.dt_bias, vector({heads}, [this] { return rng_.uniform(-2.0f, 1.0f); }));
  TRY_ASSIGN(w.norm, vector({config_.value_dim}, [this] { return rng_.uniform(0.5f, 1.5f); }));
  return w;
}

Result<AttentionWeights> Maker::attention() {
  const int64_t hidden = config_.hidden_size, q = config_.query_heads * config_.head_dim,
                kv = config_.kv_heads * config_.head_dim;
  AttentionWeights w;
  TRY_ASSIGN(w.q, matrix(formats_.mixer, {2 * q, hidden}));
  TRY_ASSIGN(w.k, matrix(formats_.mixer, {kv, hidden}));
  TRY_ASSIGN(w.v, matrix(formats_.mixer, {kv, hidden}));
  TRY_ASSIGN(w.out, matrix(formats_.mixer, {hidden, q}));
  TRY_ASSIGN(w.q_norm, norm(config_.head_dim));
  TRY_ASSIGN(w.k_norm, norm(config_.head_dim));
  return w;
}

Result<MoeWeights> Maker::moe() {
  const int64_t hidden = config_.hidden_size, experts = config_.experts,
                width = config_.expert_width, shared = config_.shared_width;
  MoeWeights w;
  TRY_ASSIGN(w.router, matrix(WeightFormat::kBF16, {experts, hidden}));
  TRY_ASSIGN(w.gate, matrix(formats_.experts, {width, hidden, experts}));
  TRY_ASSIGN(w.up, matrix(formats_.experts, {width, hidden, experts}));
  TRY_ASSIGN(w.down, matrix(formats_.experts, {hidden, width, experts}));
  TRY_ASSIGN(w.shared_weight, matrix(WeightFormat::kBF16, {1, hidden}));
  TRY_ASSIGN(w.shared_gate, matrix(formats_.shared, {shared, hidden}));
  TRY_ASSIGN(w.shared_up, matrix(formats_.shared, {shared, hidden}));
  TRY_ASSIGN(w.shared_down, matrix(formats_.shared, {hidden, shared}));
  return w;
}

Result<MlpWeights> Maker::mlp() {
  const int64_t hidden = config_.hidden_size, width = config_.intermediate_size;
  MlpWeights w;
  TRY_ASSIGN(w.gate, matrix(formats_.experts, {width, hidden}));
  TRY_ASSIGN(w.up, matrix(formats_.experts, {width, hidden}));
  TRY_ASSIGN(w.down, matrix(formats_.experts, {hidden, width}));
  return w;
}

Result<LayerWeights> Maker::layer(LayerKind kind) {
  LayerWeights w;
  TRY_ASSIGN(w.input_norm, norm(config_.hidden_size));
  TRY_ASSIGN(w.post_norm, norm(config_.hidden_size));
  if (kind == LayerKind::kDelta) {
    TRY_ASSIGN(w.delta, delta());
  } else {
    TRY_ASSIGN(w.attention, attention());
  }
  if (config_.is_moe()) {
    TRY_ASSIGN(w.moe, moe());
  } else {
    TRY_ASSIGN(w.mlp, mlp());
  }
  return w;
}

Result<MtpWeights> Maker::mtp() {
  MtpWeights w;
  TRY_ASSIGN(w.fc, matrix(formats_.mixer, {config_.hidden_size, 2 * config_.hidden_size}));
  TRY_ASSIGN(w.embedding_norm, norm(config_.hidden_size));
  TRY_ASSIGN(w.hidden_norm, norm(config_.hidden_size));
  TRY_ASSIGN(w.norm, norm(config_.hidden_size));
  TRY_ASSIGN(w.layer, layer(LayerKind::kAttention));
  return w;
}

Result<ModelWeights> Maker::weights() {
  ModelWeights w;
  TRY_ASSIGN(w.embed, matrix(WeightFormat::kBF16, {config_.vocab_size, config_.hidden_size}));
  if (config_.tied_embeddings) {
    w.head = w.embed;
  } else {
    TRY_ASSIGN(w.head, matrix(formats_.head, {config_.vocab_size, config_.hidden_size}));
  }
  TRY_ASSIGN(w.norm, norm(config_.hidden_size));
  for (const LayerKind kind : config_.layer_kinds) {
    TRY_ASSIGN(LayerWeights made, layer(kind));
    w.layers.push_back(std::move(made));
  }
  if (config_.mtp_layers > 0) {
    TRY_ASSIGN(w.mtp, mtp());
  }
  w.vectors = std::move(vectors_);
  return w;
}

ModelConfig base_config() {
  ModelConfig config;
  config.layers = 4;
  config.vocab_size = 320;
  config.max_positions = 4096;
  config.layer_kinds = {LayerKind::kDelta, LayerKind::kDelta, LayerKind::kDelta,
                        LayerKind::kAttention};
  config.rope_theta = 1e4;
  config.mtp_layers = 1;
  config.eos_token_ids = {0};
  return config;
}

ModelConfig moe_base_config() {
  ModelConfig config = base_config();
  config.model_type = "qwen3_5_moe";
  config.query_heads = 4;
  config.kv_heads = 2;
  config.head_dim = 32;
  config.rotary_dim = 8;
  config.rope_axis = {0, 1, 2, 0};
  config.experts = 8;
  config.experts_per_token = 3;
  return config;
}

ModelConfig dense_base_config() {
  ModelConfig config = base_config();
  config.model_type = "qwen3_5";
  config.tied_embeddings = true;
  config.query_heads = 6;
  config.kv_heads = 1;
  config.head_dim = 64;
  config.rotary_dim = 16;
  config.rope_axis = {0, 1, 2, 0, 1, 2, 0, 1};
  return config;
}

}  // namespace

ModelConfig tiny_moe_config() {
  ModelConfig config = moe_base_config();
  config.hidden_size = 64;
  config.key_heads = 2;
  config.value_heads = 6;
  config.key_dim = 16;
  config.value_dim = 24;
  config.expert_width = 48;
  config.shared_width = 40;
  return config;
}

ModelConfig tiny_dense_config() {
  ModelConfig config = dense_base_config();
  config.hidden_size = 96;
  config.key_heads = 1;
  config.value_heads = 3;
  config.key_dim = 32;
  config.value_dim = 16;
  config.intermediate_size = 136;
  return config;
}

ModelConfig grouped_moe_config() {
  ModelConfig config = moe_base_config();
  config.hidden_size = 128;
  config.key_heads = 2;
  config.value_heads = 8;
  config.key_dim = 24;
  config.value_dim = 16;
  config.experts = 5;
  config.expert_width = 128;
  config.shared_width = 128;
  return config;
}

ModelConfig grouped_dense_config() {
  ModelConfig config = dense_base_config();
  config.hidden_size = 256;
  config.key_heads = 4;
  config.value_heads = 4;
  config.key_dim = 16;
  config.value_dim = 32;
  config.intermediate_size = 384;
  return config;
}

Result<Qwen35Model> make_random_model(Device& device, const ModelConfig& config,
                                      const RandomFormats& formats, uint64_t seed) {
  TRY_ASSIGN(ModelWeights weights, Maker(device, config, formats, seed).weights());
  return Qwen35Model::make(device, config, std::move(weights));
}

std::vector<int32_t> random_tokens(const ModelConfig& config, int64_t count, uint64_t seed) {
  Rng rng(seed);
  std::vector<int32_t> tokens;
  for (int64_t i = 0; i < count; ++i)
    tokens.push_back(static_cast<int32_t>(rng.below(static_cast<uint64_t>(config.vocab_size))));
  return tokens;
}

}  // namespace pewter::test
