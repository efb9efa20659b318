#include "model/qwen35/draft_bytes.h"

#include <algorithm>

#include "model/qwen35/step_bytes.h"

namespace pewter {
namespace {

double number(int64_t integer) { return static_cast<double>(integer); }

ComponentBytes component_of(const Footprint& footprint, Component component) {
  const auto found =
      std::ranges::find(footprint.components, component_name(component), &ComponentBytes::name);
  CHECK(found != footprint.components.end(), "no ", component_name(component), " was counted");
  return *found;
}

}  // namespace

DraftEnds draft_ends(const ModelConfig& config, const Footprint& footprint,
                     int64_t draft_head_rows) {
  const WeightSpec rows{
      .format = WeightFormat::kInt8Row, .n = draft_head_rows, .k = config.hidden_size};
  return {.head = draft_head_rows > 0
                      ? number(weight_bytes(rows))
                      : number(component_of(footprint, Component::kHead).token_bytes),
          .embedding_row = number(component_of(footprint, Component::kEmbedding).token_bytes)};
}

double mtp_draft_bytes(const ModelConfig& config, const Footprint& footprint, const DraftEnds& ends,
                       const DraftStep& step) {
  const ComponentBytes layer = component_of(footprint, Component::kMtp);
  const double top_k = number(config.experts_per_token);
  // A token's bytes are those of its experts and everything else; the stored ones of all experts.
  double weights = number(layer.token_bytes);
  if (config.is_moe() && step.sequences > 1)
    weights += number(layer.stored_bytes - layer.token_bytes) / (number(config.experts) - top_k) *
               (uniform_experts(config, step.sequences) - top_k);
  const double sequences = number(step.sequences), drafts = number(step.drafts);
  // The first guess sees the context, each further one a position more.
  const double seen = drafts * step.context + drafts * (drafts - 1) / 2;
  const double rows = step.committed_rows + drafts - 1;
  return drafts * (weights + ends.head) +
         sequences *
             (rows * ends.embedding_row + (rows + seen) * number(footprint.mtp_kv_token_bytes));
}

}  // namespace pewter
