// How far the fast path may be from the reference. Every bound follows from the number of terms,
// the norms of the operands and the types' epsilon; nothing here was fitted.
//
// The reference sums in double and keeps f32 between stages; its own error is an f32 rounding. The
// fast path sums in f32 with at least four lanes and rounds to bf16 where a stage ends.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "tensor/dtype.h"

namespace pewter::test {

// Half an ulp, relative to the value, at worst.
inline constexpr double kF32 = 0x1p-24;
inline constexpr double kBF16 = 0x1p-8;

constexpr double epsilon(DType dtype) { return dtype == DType::kBF16 ? kBF16 : kF32; }

// Roundings a term of a k-term inner product may pass through: k/4 additions in its lane, one
// multiply, and adding the lanes.
inline double dot_roundings(int64_t k) { return static_cast<double>(k) / 4 + 8; }

// |error| of Σ x·w over k terms. By Cauchy-Schwarz Σ|x·w| ≤ ‖x‖‖w‖. `input` is the relative error
// that x already carries.
inline double dot_bound(int64_t k, double x_norm, double w_norm, double input = 0) {
  return (dot_roundings(k) * kF32 + input) * x_norm * w_norm;
}

// Relative error, in the norm, of a row of int8 codes: half a step of (largest of 128) / 127 for
// every input. `x` has n elements.
template <typename T>
double code_error(const T* x, int64_t n) {
  double error = 0, norm = 0;
  for (int64_t g = 0; g < n; g += 128) {
    double largest = 0;
    for (int64_t i = g; i < std::min(g + 128, n); ++i) {
      const double value = static_cast<double>(x[i]);
      largest = std::max(largest, std::abs(value));
      norm += value * value;
    }
    error += static_cast<double>(std::min<int64_t>(128, n - g)) * (largest / 254) * (largest / 254);
  }
  return norm == 0 ? 0 : std::sqrt(error / norm) * (1 + kBF16);
}

// Relative error of an RMS-normed element: the root, the mean (relative, all terms are positive),
// and three multiplications.
inline double norm_error(int64_t n) { return (dot_roundings(n) / 2 + 6) * kF32; }

// Adds the rounding of a result where it leaves its stage, and the reference's own.
inline double rounded(double value, double bound, DType dtype) {
  return bound + (std::abs(value) + bound) * (epsilon(dtype) + 2 * kF32);
}

// silu(g)·u from g and u with errors: |silu'| ≤ 1.1, |silu(g)| ≤ |g|, and its own roundings
// (exponential 1 ulp, sum, quotient, two products: 8 in all).
inline double gated_bound(double g, double g_error, double u, double u_error) {
  return 1.1 * g_error * (std::abs(u) + u_error) + std::abs(g) * u_error +
         8 * kF32 * std::abs(g * u);
}

// The delta rule after `rows` rows, relative to the largest output of the head. A row's prediction
// and output are dk-term sums, and both ‖I − βkkᵀ‖ ≤ 1 and the decay ≤ 1 keep earlier errors from
// growing, so they add over the rows; chunking adds a 64-term sum beside each. The gated norm
// divides by the output's own size, which by cancellation may be smaller than the state it comes
// from: kCancellation is how much smaller these tests' outputs get.
inline constexpr double kCancellation = 32;
inline double delta_error(int64_t rows, int64_t dk) {
  return static_cast<double>(rows + 4) * (dot_roundings(dk) + dot_roundings(64)) * kF32 *
         kCancellation;
}

// Attention: a score is a d-term sum of size ≤ `score`, and its error and the exponential's move
// every weight by that much; numerator and denominator both carry them, and sum `context` terms in
// stretches of 256 that merge. Relative to the largest value.
inline double attention_error(int64_t context, int64_t d, double score) {
  const double weight = 2 * dot_roundings(d) * kF32 * score + 4 * kF32;
  const double sums = (std::min<double>(static_cast<double>(context), 256) +
                       3 * static_cast<double>(context) / 256 + 8) *
                      kF32;
  return 2 * (weight + sums);
}

}  // namespace pewter::test
