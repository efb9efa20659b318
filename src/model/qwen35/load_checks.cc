#include "model/qwen35/load_checks.h"

#include <algorithm>
#include <numeric>

namespace pewter {

void check_plausible(const LoadPlan& plan, std::span<const float> floats, Findings& findings) {
  // GGUF conversion adds 1 to the zero-centred norms and stores −exp(A_log). A norm near 1 in one
  // layer is possible, in all of them it is not; A_log as trained reaches below −1, or above 0
  // where it is fresh, while −exp(A_log) was seen between −0.34 and −0.004.
  constexpr float kShiftedMean = 0.7f, kShiftedLeast = 0.2f, kExponentiatedLeast = -0.5f;
  bool any_norm = false, all_shifted = true, any_decay = false, all_exponentiated = true;
  for (const VectorPlan& vector : plan.vectors) {
    const auto values = floats.first(static_cast<size_t>(vector.parameter.elements()));
    floats = floats.subspan(static_cast<size_t>(vector.stored_elements()));
    const std::string& name = vector.parameter.name;
    const auto [low, high] = std::ranges::minmax(values);
    if (name.ends_with(".input_layernorm.weight") && name.starts_with("layers.")) {
      const float mean =
          std::accumulate(values.begin(), values.end(), 0.0f) / static_cast<float>(values.size());
      any_norm = true;
      all_shifted = all_shifted && mean > kShiftedMean && low > kShiftedLeast;
    } else if (name.ends_with(".A_log")) {
      any_decay = true;
      all_exponentiated = all_exponentiated && low > kExponentiatedLeast && high < 0;
    }
  }
  if (any_norm && all_shifted)
    findings.warn(
        "input_layernorm weights are about 1 too high in every layer: was 1 added to them, as GGUF "
        "files have it?");
  if (any_decay && all_exponentiated)
    findings.warn(
        "A_log is in (-0.5, 0) in every layer: is it -exp(A_log), as GGUF files have it?");
}

}  // namespace pewter
