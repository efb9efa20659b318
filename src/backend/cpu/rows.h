// Element-wise work on rows: conversions, norms, gates. Every function treats element i alike
// wherever the row lies and however long it is, so splitting rows changes no bit. T is float or
// BFloat16; rounding is to nearest even.
#pragma once

#include "tensor/tensor_view.h"

namespace pewter {

// out[i] = float(x[i]) for i < n, zeros up to `padded`.
void widen_row(const TensorView& x, float* out, int64_t n, int64_t padded);
// Stores n floats as the dtype at `out`.
void narrow_row(const float* x, std::byte* out, DType dtype, int64_t n);

// y = x / √(mean(x²) + ε) · (1 + w), f32 in and out.
void norm_row(const float* x, const float* w, float epsilon, int64_t n, float* y);

// A row of codes (panel_rows.h): x ≈ code · scale with scale = (largest |x| of 128) / 127, codes
// rounded to nearest. A group that is not finite gets a scale that is not. n is a multiple of 128.
void code_row(const float* x, int64_t n, int8_t* out);

// What becomes of a block of results, row by row: results ← silu(results) · up if `up` is given;
// then stored as the dtype at out[r] + offset; then, as floats, added to residual[r] +
// residual_offset.
struct FinishRows {
  float* results = nullptr;
  const float* up = nullptr;
  int64_t stride = 0;  // of both
  int64_t rows = 0, n = 0;
  std::byte* const* out = nullptr;
  int64_t offset_bytes = 0;
  DType dtype = DType::kF32;
  float* const* residual = nullptr;
  int64_t residual_offset = 0;
};
void finish_rows(const FinishRows& args);

// sum = Σ_slot weight[slot] · row place[slot] of `rows`, in slot order, then + last_weight · last.
struct WeightedRows {
  const float* rows = nullptr;
  int64_t stride = 0;
  const int32_t* place = nullptr;
  const float* weight = nullptr;
  int64_t slots = 0;
  const float* last = nullptr;
  float last_weight = 0;
};
void weighted_sum_row(const WeightedRows& from, int64_t n, float* sum);

// sum[i] += x[i]
void add_row(float* sum, const float* x, int64_t n);

// x ← eˣ⁻ᵐ with m the largest; returns the sum of the results.
float exponentials_row(float* x, int64_t n);

}  // namespace pewter
