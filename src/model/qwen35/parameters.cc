#include "model/qwen35/parameters.h"

#include <array>

namespace pewter {
namespace {

// A member that is there keeps what it holds.
template <typename T>
T& ensure(std::optional<T>& member) {
  return member ? *member : member.emplace();
}

class Lister {
 public:
  Lister(const ModelConfig& config, Parameters& out) : config_(config), out_(out) {}

  void layer(const std::string& stem, LayerKind kind, LayerWeights& layer) {
    const int64_t hidden = config_.hidden_size;
    vector(stem + "input_layernorm.weight", hidden, layer.input_norm);
    vector(stem + "post_attention_layernorm.weight", hidden, layer.post_norm);
    if (kind == LayerKind::kDelta)
      delta(stem + "linear_attn.", ensure(layer.delta));
    else
      attention(stem + "self_attn.", ensure(layer.attention));
    if (config_.is_moe())
      moe(stem + "mlp.", ensure(layer.moe));
    else
      mlp(stem + "mlp.", ensure(layer.mlp));
  }

  void matrix(Component component, std::string module, int64_t n, int64_t k, WeightMatrix& target,
              bool float_only = false) {
    out_.matrices.push_back({.component = in_mtp_ ? Component::kMtp : component,
                             .module = std::move(module),
                             .n = n,
                             .k = k,
                             .float_only = float_only,
                             .target = &target});
  }
  void vector(std::string name, int64_t size, TensorView& target) {
    add_vector({.name = std::move(name), .shapes = {{size}}, .view_shape = {size}}, target);
  }
  void enter_mtp() { in_mtp_ = true; }

 private:
  void add_vector(VectorParameter parameter, TensorView& target) {
    parameter.component = in_mtp_ ? Component::kMtp : Component::kSmall;
    parameter.target = &target;
    out_.vectors.push_back(std::move(parameter));
  }

  void delta(const std::string& stem, DeltaWeights& w) {
    const int64_t hidden = config_.hidden_size, channels = config_.delta_channels();
    const int64_t heads = config_.value_heads, values = heads * config_.value_dim;
    matrix(Component::kDelta, stem + "in_proj_qkv", channels, hidden, w.in_qkv);
    matrix(Component::kDelta, stem + "in_proj_z", values, hidden, w.in_z);
    matrix(Component::kDeltaGates, stem + "in_proj_b", heads, hidden, w.in_b);
    matrix(Component::kDeltaGates, stem + "in_proj_a", heads, hidden, w.in_a);
    matrix(Component::kDelta, stem + "out_proj", hidden, values, w.out);
    // MLX exports move the channel axis of the depthwise kernel last; the bytes stay the same.
    add_vector({.name = stem + "conv1d.weight",
                .shapes = {{channels, 1, 4}, {channels, 4, 1}},
                .view_shape = {channels, 4}},
               w.conv);
    vector(stem + "A_log", heads, w.a_log);
    vector(stem + "dt_bias", heads, w.dt_bias);
    vector(stem + "norm.weight", config_.value_dim, w.norm);
  }

  void attention(const std::string& stem, AttentionWeights& w) {
    const int64_t hidden = config_.hidden_size, dim = config_.head_dim;
    const int64_t queries = config_.query_heads * dim, keys = config_.kv_heads * dim;
    matrix(Component::kAttention, stem + "q_proj", 2 * queries, hidden, w.q);
    matrix(Component::kAttention, stem + "k_proj", keys, hidden, w.k);
    matrix(Component::kAttention, stem + "v_proj", keys, hidden, w.v);
    matrix(Component::kAttention, stem + "o_proj", hidden, queries, w.out);
    vector(stem + "q_norm.weight", dim, w.q_norm);
    vector(stem + "k_norm.weight", dim, w.k_norm);
  }

  void moe(const std::string& stem, MoeWeights& w) {
    const int64_t hidden = config_.hidden_size, width = config_.expert_width;
    const int64_t shared = config_.shared_width;
    matrix(Component::kRouter, stem + "gate", config_.experts, hidden, w.router, true);
    experts(stem, "gate_proj", width, hidden, w.gate);
    experts(stem, "up_proj", width, hidden, w.up);
    experts(stem, "down_proj", hidden, width, w.down);
    matrix(Component::kSharedGate, stem + "shared_expert_gate", 1, hidden, w.shared_weight, true);
    feed_forward(Component::kSharedExperts, stem + "shared_expert.", shared, w.shared_gate,
                 w.shared_up, w.shared_down);
  }
  void experts(const std::string& stem, const char* projection, int64_t n, int64_t k,
               WeightMatrix& target) {
    out_.matrices.push_back({.component = in_mtp_ ? Component::kMtp : Component::kRoutedExperts,
                             .module = stem + "experts",
                             .projection = projection,
                             .n = n,
                             .k = k,
                             .count = config_.experts,
                             .target = &target});
  }
  void mlp(const std::string& stem, MlpWeights& w) {
    feed_forward(Component::kMlp, stem, config_.intermediate_size, w.gate, w.up, w.down);
  }
  void feed_forward(Component component, const std::string& stem, int64_t width, WeightMatrix& gate,
                    WeightMatrix& up, WeightMatrix& down) {
    const int64_t hidden = config_.hidden_size;
    matrix(component, stem + "gate_proj", width, hidden, gate);
    matrix(component, stem + "up_proj", width, hidden, up);
    matrix(component, stem + "down_proj", hidden, width, down);
  }

  const ModelConfig& config_;
  Parameters& out_;
  bool in_mtp_ = false;
};

}  // namespace

std::string_view component_name(Component component) {
  constexpr std::array<std::string_view, kComponents> kNames = {
      "embedding", "routed_experts", "shared_experts", "mlp",       "router",  "shared_gate",
      "delta",     "delta_gates",    "small",          "attention", "lm_head", "mtp"};
  return kNames[static_cast<size_t>(component)];
}

int64_t VectorParameter::elements() const {
  int64_t product = 1;
  for (const int64_t extent : view_shape) product *= extent;
  return product;
}

Parameters list_parameters(const ModelConfig& config, bool with_mtp, ModelWeights& weights) {
  Parameters out;
  Lister lister(config, out);
  const int64_t hidden = config.hidden_size;
  lister.matrix(Component::kEmbedding, "embed_tokens", config.vocab_size, hidden, weights.embed,
                /*float_only=*/true);
  weights.layers.resize(static_cast<size_t>(config.layers));
  for (size_t i = 0; i < weights.layers.size(); ++i)
    lister.layer(str_cat("layers.", i, "."), config.layer_kinds[i], weights.layers[i]);
  lister.vector("norm.weight", hidden, weights.norm);
  if (!config.tied_embeddings)
    lister.matrix(Component::kHead, "lm_head", config.vocab_size, hidden, weights.head);
  if (with_mtp) {
    MtpWeights& mtp = ensure(weights.mtp);
    lister.enter_mtp();
    lister.matrix(Component::kMtp, "mtp.fc", hidden, 2 * hidden, mtp.fc);
    lister.vector("mtp.pre_fc_norm_embedding.weight", hidden, mtp.embedding_norm);
    lister.vector("mtp.pre_fc_norm_hidden.weight", hidden, mtp.hidden_norm);
    lister.vector("mtp.norm.weight", hidden, mtp.norm);
    lister.layer("mtp.layers.0.", LayerKind::kAttention, mtp.layer);
  }
  return out;
}

}  // namespace pewter
