// Every parameter of a Qwen3.5 model: its canonical name, its shape, and the member of ModelWeights
// it fills. The one list that loading, memory planning and `pewter inspect` go by.
#pragma once

#include "model/qwen35/weights.h"

namespace pewter {

// What a parameter belongs to in a table of bytes.
enum class Component : uint8_t {
  kEmbedding,
  kRoutedExperts,
  kSharedExperts,
  kMlp,  // a dense model's feed-forward
  kRouter,
  kSharedGate,
  kDelta,       // qkv, z, out
  kDeltaGates,  // a, b
  kSmall,       // norms, convolution, A_log, dt_bias
  kAttention,
  kHead,
  kMtp,
};
inline constexpr int kComponents = static_cast<int>(Component::kMtp) + 1;
std::string_view component_name(Component component);

struct MatrixParameter {
  Component component = Component::kSmall;
  // The module: layers.3.self_attn.q_proj. Of experts, the common stem: layers.3.mlp.experts.
  std::string module;
  std::string projection;  // of experts: gate_proj, up_proj or down_proj
  int64_t n = 0, k = 0, count = 1;
  bool float_only = false;  // never quantised: the router, the gates, the embedding
  WeightMatrix* target = nullptr;

  bool is_experts() const { return !projection.empty(); }
};

struct VectorParameter {
  Component component = Component::kSmall;
  std::string name;  // of the tensor
  // Accepted shapes, the usual one first; the elements are the same in all of them.
  std::vector<std::vector<int64_t>> shapes;
  std::vector<int64_t> view_shape;  // of the target
  TensorView* target = nullptr;
  int64_t elements() const;
};

struct Parameters {
  std::vector<MatrixParameter> matrices;
  std::vector<VectorParameter> vectors;
};

// Lists the parameters and shapes `weights` for them: makes the layers and optional members that
// are not there yet, so that it may also walk weights that are loaded. The targets point into
// weights, which must stay where it is. A tied head is not in the list.
Parameters list_parameters(const ModelConfig& config, bool with_mtp, ModelWeights& weights);

}  // namespace pewter
