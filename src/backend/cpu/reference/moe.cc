// The reference's mixture of experts: routing, the chosen experts one by one, and their sum in slot
// order.

#include <algorithm>

#include "backend/cpu/reference/math.h"
#include "backend/cpu/reference/reference_ops.h"

namespace pewter {

void ReferenceOps::route(const RouteArgs& args) {
  const int64_t m = args.x.dim(0), hidden = args.x.dim(1), experts = args.router.n,
                top_k = args.expert.dim(1);
  float* probability = experts_.data();
  for (int64_t r = 0; r < m; ++r) {
    float* normed = args.normed[r].data_as<float>();
    rms_norm(args.x[r].data_as<float>(), args.norm.data_as<float>(), hidden, args.epsilon,
             NormForm::kOnePlus, normed);
    linear(normed, 1, args.router, 0, probability, experts);
    const float largest = *std::max_element(probability, probability + experts);
    float total = 0;
    for (int64_t e = 0; e < experts; ++e)
      total += probability[e] = std::exp(probability[e] - largest);
    for (int64_t e = 0; e < experts; ++e) probability[e] /= total;

    auto* chosen = args.expert[r].data_as<int32_t>();
    auto* weight = args.weight[r].data_as<float>();
    float sum = 0;
    for (int64_t slot = 0; slot < top_k; ++slot) {
      int64_t best = -1;
      for (int64_t e = 0; e < experts; ++e) {
        const bool taken =
            std::find(chosen, chosen + slot, static_cast<int32_t>(e)) != chosen + slot;
        if (!taken && (best < 0 || probability[e] > probability[best]))
          best = e;  // ties: the lower index
      }
      chosen[slot] = static_cast<int32_t>(best);
      sum += weight[slot] = probability[best];
    }
    for (int64_t slot = 0; slot < top_k; ++slot) weight[slot] /= sum;

    float gate = 0;
    linear(normed, 1, args.shared_gate, 0, &gate, 1);
    args.shared_weight.data_as<float>()[r] = sigmoid(gate);
  }
}

void ReferenceOps::experts_up(const ExpertsUpArgs& args) {
  const auto up = [&](const float* x, const WeightMatrix& gate, const WeightMatrix& up_matrix,
                      int64_t index, float* out) {
    float* upper = experts_.data();
    linear(x, 1, gate, index, out, gate.n);
    linear(x, 1, up_matrix, index, upper, gate.n);
    for (int64_t i = 0; i < gate.n; ++i) out[i] = silu(out[i]) * upper[i];
  };
  for (int64_t r = 0; r < args.normed.dim(0); ++r) {
    const float* x = args.normed[r].data_as<float>();
    for (int64_t slot = 0; slot < args.expert.dim(1); ++slot)
      up(x, args.gate, args.up, args.expert[r].data_as<int32_t>()[slot],
         args.hidden[r][slot].data_as<float>());
    up(x, args.shared_gate, args.shared_up, 0, args.shared_hidden[r].data_as<float>());
  }
}

void ReferenceOps::experts_down_add(const ExpertsDownAddArgs& args) {
  const int64_t hidden = args.partial.dim(1);
  float* part = experts_.data();
  for (int64_t r = 0; r < args.partial.dim(0); ++r) {
    float* sum = args.partial[r].data_as<float>();
    std::fill(sum, sum + hidden, 0.0f);
    for (int64_t slot = 0; slot < args.expert.dim(1); ++slot) {
      linear(args.hidden[r][slot].data_as<float>(), 1, args.down,
             args.expert[r].data_as<int32_t>()[slot], part, hidden);
      const float weight = args.weight[r].data_as<float>()[slot];
      for (int64_t i = 0; i < hidden; ++i) sum[i] += weight * part[i];
    }
    linear(args.shared_hidden[r].data_as<float>(), 1, args.shared_down, 0, part, hidden);
    const float weight = args.shared_weight.data_as<float>()[r];
    for (int64_t i = 0; i < hidden; ++i) sum[i] += weight * part[i];
  }
  if (args.residual.defined()) add_residual({.partial = args.partial, .residual = args.residual});
}

}  // namespace pewter
