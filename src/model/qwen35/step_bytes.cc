#include "model/qwen35/step_bytes.h"

#include <cmath>

namespace pewter {
namespace {

double number(int64_t integer) { return static_cast<double>(integer); }

}  // namespace

StepBytes decode_bytes(const ModelConfig& config, const Footprint& footprint,
                       const DecodeStep& step) {
  StepBytes bytes;
  for (const ComponentBytes& component : footprint.components) {
    if (component.name == component_name(Component::kMtp)) continue;
    if (component.name == component_name(Component::kRoutedExperts)) {
      const double distinct =
          step.distinct_experts > 0 ? step.distinct_experts : number(config.experts_per_token);
      bytes.experts += number(component.stored_bytes) * distinct / number(config.experts);
    } else if (component.name == component_name(Component::kEmbedding)) {
      bytes.weights += number(component.token_bytes * step.rows);
    } else {
      bytes.weights += number(component.token_bytes);
    }
  }
  bytes.state =
      2 * number(step.sequences * (footprint.recurrent_bytes + footprint.convolution_bytes));
  bytes.kv = number(footprint.kv_token_bytes) *
             (number(step.sequences) * step.context + number(step.rows));
  return bytes;
}

double uniform_experts(const ModelConfig& config, int64_t rows) {
  if (!config.is_moe()) return 0;
  const double experts = number(config.experts);
  return experts * (1 - std::pow(1 - number(config.experts_per_token) / experts, number(rows)));
}

double prefill_flops(const ModelConfig& config, const PrefillStep& step) {
  ModelWeights shape;
  double active = 0;
  for (const MatrixParameter& p : list_parameters(config, /*with_mtp=*/false, shape).matrices) {
    if (p.component == Component::kEmbedding || p.component == Component::kHead) continue;
    active += number(p.n * p.k * (p.is_experts() ? config.experts_per_token : 1));
  }
  const double tokens = number(step.tokens);
  const double head = number(config.vocab_size * config.hidden_size);  // the embedding when tied
  // Token i sees the context and i + 1 positions of its own prompt.
  const double seen = tokens * number(step.context) + tokens * (tokens + 1) / 2;
  const double attention = 4 * number(config.query_heads * config.head_dim) * seen *
                           number(config.count(LayerKind::kAttention));
  const double delta = 6 * tokens * number(config.value_heads * config.key_dim * config.value_dim) *
                       number(config.count(LayerKind::kDelta));
  return 2 * tokens * active + 2 * number(step.logits_rows) * head + attention + delta;
}

}  // namespace pewter
