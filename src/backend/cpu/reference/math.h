// Scalar formulas shared by the reference ops.
#pragma once

#include <cmath>

#include "tensor/tensor_view.h"

namespace pewter {

inline float sigmoid(float x) { return 1.0f / (1.0f + std::exp(-x)); }
inline float silu(float x) { return x * sigmoid(x); }
// log(1 + eˣ); equals x in float beyond 20.
inline float softplus(float x) { return x > 20.0f ? x : std::log1p(std::exp(x)); }

// y = x / √(mean(x²) + ε) · (1 + w), or · w for the plain form.
enum class NormForm { kOnePlus, kPlain };
inline void rms_norm(const float* x, const float* w, int64_t n, float epsilon, NormForm form,
                     float* y) {
  double sum = 0;
  for (int64_t i = 0; i < n; ++i) sum += static_cast<double>(x[i]) * x[i];
  const float scale = 1.0f / std::sqrt(static_cast<float>(sum / static_cast<double>(n)) + epsilon);
  for (int64_t i = 0; i < n; ++i)
    y[i] = x[i] * scale * (form == NormForm::kOnePlus ? 1.0f + w[i] : w[i]);
}

}  // namespace pewter
