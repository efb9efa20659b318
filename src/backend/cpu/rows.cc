// Element-wise row kernels. One worker per row or part of one; every element is read and written
// once, and memory or cache limits them.

#include "backend/cpu/rows.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "backend/cpu/simd.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "backend/cpu/rows.cc"
#include <hwy/foreach_target.h>
//
#include "backend/cpu/simd_inl.h"

HWY_BEFORE_NAMESPACE();
namespace pewter {
namespace HWY_NAMESPACE {

void widen_bf16(const BFloat16* x, float* out, int64_t n) {
  for (int64_t i = 0; i < n; i += kLanes) store(load(x + i, n - i), out + i, n - i);
}

void narrow_bf16(const float* x, BFloat16* out, int64_t n) {
  for (int64_t i = 0; i < n; i += kLanes) store(load(x + i, n - i), out + i, n - i);
}

void norm_row(const float* x, const float* w, float epsilon, int64_t n, float* y) {
  const float mean = sum_of_squares(x, n) / static_cast<float>(n);
  const V scale = hn::Set(D(), 1.0f / std::sqrt(mean + epsilon)), one = hn::Set(D(), 1.0f);
  for (int64_t i = 0; i < n; i += kLanes) {
    const V factor = hn::Add(one, load(w + i, n - i));
    store(hn::Mul(hn::Mul(load(x + i, n - i), scale), factor), y + i, n - i);
  }
}

void code_row(const float* x, int64_t n, int8_t* out) {
  const hn::Rebind<int32_t, D> di;
  auto* scales = reinterpret_cast<float*>(out + n);
  auto* offsets = reinterpret_cast<int32_t*>(scales + n / 128);
  for (int64_t group = 0; group < n / 128; ++group, x += 128, out += 128) {
    V most = hn::Zero(D()), poison = hn::Zero(D());  // infinity and NaN times 0 are NaN
    for (int64_t i = 0; i < 128; i += kLanes) {
      const V v = hn::LoadU(D(), x + i);
      most = hn::Max(most, hn::Abs(v));
      poison = hn::MulAdd(v, hn::Zero(D()), poison);
    }
    const float largest = hn::GetLane(hn::MaxOfLanes(D(), most));
    // What is too small to divide by is zero.
    const float inverse = largest > 1e-30f ? 127.0f / largest : 0.0f;
    scales[group] = (largest > 1e-30f ? largest / 127.0f : 0.0f) + sum(poison);
    const V factor = hn::Set(D(), inverse);
    auto total = hn::Zero(di);
    for (int64_t i = 0; i < 128; i += kLanes) {
      const auto code = hn::NearestInt(hn::Mul(hn::LoadU(D(), x + i), factor));
      total = hn::Add(total, code);
      hn::StoreU(hn::DemoteTo(hn::Rebind<int8_t, D>(), code), hn::Rebind<int8_t, D>(), out + i);
    }
    // Without sign: codes of what is not finite may add up to anything, and their scale is NaN.
    const auto all = static_cast<uint32_t>(hn::GetLane(hn::SumOfLanes(di, total)));
    offsets[group] = static_cast<int32_t>(0u - 8 * all);
  }
}

void weighted_sum_row(const WeightedRows& from, int64_t n, float* sum) {
  for (int64_t i = 0; i < n; i += kLanes) {
    V total = hn::Zero(D());
    for (int64_t slot = 0; slot < from.slots; ++slot) {
      const float* row = from.rows + from.place[slot] * from.stride;
      total = hn::MulAdd(hn::Set(D(), from.weight[slot]), load(row + i, n - i), total);
    }
    total = hn::MulAdd(hn::Set(D(), from.last_weight), load(from.last + i, n - i), total);
    store(total, sum + i, n - i);
  }
}

void add_row(float* sum, const float* x, int64_t n) {
  for (int64_t i = 0; i < n; i += kLanes)
    store(hn::Add(load(sum + i, n - i), load(x + i, n - i)), sum + i, n - i);
}

void finish_rows(const FinishRows& args) {
  const int64_t n = args.n;
  for (int64_t r = 0; r < args.rows; ++r) {
    float* x = args.results + r * args.stride;
    if (args.up != nullptr) {
      const float* up = args.up + r * args.stride;
      for (int64_t i = 0; i < n; i += kLanes)
        store(hn::Mul(silu(load(x + i, n - i)), load(up + i, n - i)), x + i, n - i);
    }
    std::byte* out = args.out[r] + args.offset_bytes;
    if (args.dtype == DType::kF32)
      std::memcpy(out, x, static_cast<size_t>(n) * sizeof(float));
    else
      narrow_bf16(x, reinterpret_cast<BFloat16*>(out), n);
    if (args.residual != nullptr) add_row(args.residual[r] + args.residual_offset, x, n);
  }
}

float exponentials_row(float* x, int64_t n) {
  float largest = x[0];
  for (int64_t i = 1; i < n; ++i) largest = HWY_MAX(largest, x[i]);
  const V shift = hn::Set(D(), largest);
  for (int64_t i = 0; i < n; i += kLanes)
    store(exponential(hn::Sub(load(x + i, n - i), shift)), x + i, n - i);
  V total = hn::Zero(D());
  for (int64_t i = 0; i < n; i += kLanes) total = hn::Add(total, load(x + i, n - i));
  return sum(total);
}

}  // namespace HWY_NAMESPACE
}  // namespace pewter
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace pewter {

HWY_EXPORT(widen_bf16);
HWY_EXPORT(narrow_bf16);
HWY_EXPORT(norm_row);
HWY_EXPORT(code_row);
HWY_EXPORT(finish_rows);
HWY_EXPORT(weighted_sum_row);
HWY_EXPORT(add_row);
HWY_EXPORT(exponentials_row);

void widen_row(const TensorView& x, float* out, int64_t n, int64_t padded) {
  if (x.dtype() == DType::kF32)
    std::memcpy(out, x.data(), static_cast<size_t>(n) * sizeof(float));
  else
    HWY_DYNAMIC_DISPATCH(widen_bf16)(x.data_as<BFloat16>(), out, n);
  std::fill(out + n, out + padded, 0.0f);
}

void narrow_row(const float* x, std::byte* out, DType dtype, int64_t n) {
  if (dtype == DType::kF32)
    std::memcpy(out, x, static_cast<size_t>(n) * sizeof(float));
  else
    HWY_DYNAMIC_DISPATCH(narrow_bf16)(x, reinterpret_cast<BFloat16*>(out), n);
}

void norm_row(const float* x, const float* w, float epsilon, int64_t n, float* y) {
  HWY_DYNAMIC_DISPATCH(norm_row)(x, w, epsilon, n, y);
}
void code_row(const float* x, int64_t n, int8_t* out) {
  CHECK(n % 128 == 0, "codes of ", n, " inputs");
  HWY_DYNAMIC_DISPATCH(code_row)(x, n, out);
}
void finish_rows(const FinishRows& args) { HWY_DYNAMIC_DISPATCH(finish_rows)(args); }
void weighted_sum_row(const WeightedRows& from, int64_t n, float* sum) {
  HWY_DYNAMIC_DISPATCH(weighted_sum_row)(from, n, sum);
}
void add_row(float* sum, const float* x, int64_t n) { HWY_DYNAMIC_DISPATCH(add_row)(sum, x, n); }
float exponentials_row(float* x, int64_t n) { return HWY_DYNAMIC_DISPATCH(exponentials_row)(x, n); }

}  // namespace pewter
#endif
