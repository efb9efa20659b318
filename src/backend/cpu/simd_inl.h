// Small vector helpers shared by the kernels, compiled once per target: the float vector, loads and
// stores of row ends, roundings, exponentials.
#if defined(PEWTER_SIMD_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef PEWTER_SIMD_INL_H
#undef PEWTER_SIMD_INL_H
#else
#define PEWTER_SIMD_INL_H
#endif

#include <hwy/highway.h>
//
#include <hwy/contrib/math/math-inl.h>

#include <utility>

#include "tensor/dtype.h"

#ifndef PEWTER_INLINE_LAMBDA
#define PEWTER_INLINE_LAMBDA __attribute__((always_inline))
#endif

HWY_BEFORE_NAMESPACE();
namespace pewter {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

using D = hn::CappedTag<float, 16>;
using V = hn::Vec<D>;
inline constexpr int64_t kLanes = static_cast<int64_t>(hn::MaxLanes(D()));

// f(0), f(1), … with indexes known at compile time, so that arrays of vectors stay in registers.
template <class F, int... kIndex>
HWY_INLINE void unroll_sequence(const F& f, std::integer_sequence<int, kIndex...>) {
  (f(std::integral_constant<int, kIndex>()), ...);
}
template <int kCount, class F>
HWY_INLINE void unroll(const F& f) {
  unroll_sequence(f, std::make_integer_sequence<int, kCount>());
}

// Loads and stores of `count` elements: all lanes, or the end of a row. Lanes beyond are zero.
HWY_INLINE V load(const float* from, int64_t count) {
  if (HWY_LIKELY(count >= kLanes)) return hn::LoadU(D(), from);
  HWY_ALIGN float buffer[kLanes] = {};
  for (int64_t j = 0; j < count; ++j) buffer[j] = from[j];
  return hn::Load(D(), buffer);
}
HWY_INLINE void store(V v, float* to, int64_t count) {
  if (HWY_LIKELY(count >= kLanes)) return hn::StoreU(v, D(), to);
  HWY_ALIGN float buffer[kLanes];
  hn::Store(v, D(), buffer);
  for (int64_t j = 0; j < count; ++j) to[j] = buffer[j];
}

HWY_INLINE V load(const BFloat16* from, int64_t count) {
  const hn::Rebind<uint16_t, D> d16;
  const hn::Rebind<uint32_t, D> d32;
  HWY_ALIGN uint16_t buffer[kLanes] = {};
  const auto* at = reinterpret_cast<const uint16_t*>(from);
  if (HWY_UNLIKELY(count < kLanes)) {
    for (int64_t j = 0; j < count; ++j) buffer[j] = at[j];
    at = buffer;
  }
  return hn::BitCast(D(), hn::ShiftLeft<16>(hn::PromoteTo(d32, hn::LoadU(d16, at))));
}
// Rounds to nearest, ties to even; NaN stays NaN.
HWY_INLINE void store(V v, BFloat16* to, int64_t count) {
  const hn::Rebind<uint16_t, D> d16;
  const hn::Rebind<uint32_t, D> d32;
  const hn::Rebind<int32_t, D> di;
  const auto bits = hn::BitCast(d32, v);
  const auto top = hn::ShiftRight<16>(bits);
  const auto odd = hn::And(top, hn::Set(d32, 1u));
  auto rounded = hn::ShiftRight<16>(hn::Add(hn::Add(bits, hn::Set(d32, 0x7FFFu)), odd));
  const auto nan = hn::MaskFromVec(hn::BitCast(d32, hn::VecFromMask(D(), hn::Ne(v, v))));
  rounded = hn::IfThenElse(nan, hn::Or(top, hn::Set(d32, 0x40u)), rounded);
  const auto narrow = hn::DemoteTo(d16, hn::BitCast(di, rounded));
  auto* at = reinterpret_cast<uint16_t*>(to);
  if (HWY_LIKELY(count >= kLanes)) return hn::StoreU(narrow, d16, at);
  HWY_ALIGN uint16_t buffer[kLanes];
  hn::Store(narrow, d16, buffer);
  for (int64_t j = 0; j < count; ++j) at[j] = buffer[j];
}

// eˣ within 1 ulp, 0 below −104; NaN stays NaN, which Highway's alone does not promise.
HWY_INLINE V exponential(V x) {
  const V y = hn::Exp(D(), hn::Min(hn::Set(D(), 104.0f), x));
  return hn::IfThenElse(hn::Eq(x, x), y, x);
}
HWY_INLINE V sigmoid(V x) {
  const V one = hn::Set(D(), 1.0f);
  return hn::Div(one, hn::Add(one, exponential(hn::Neg(x))));
}
HWY_INLINE V silu(V x) { return hn::Mul(x, sigmoid(x)); }

HWY_INLINE float sum(V v) { return hn::GetLane(hn::SumOfLanes(D(), v)); }

template <typename T>
HWY_INLINE float sum_of_squares(const T* x, int64_t n) {
  V total = hn::Zero(D());
  for (int64_t i = 0; i < n; i += kLanes) {
    const V v = load(x + i, n - i);
    total = hn::MulAdd(v, v, total);
  }
  return sum(total);
}

HWY_INLINE float inner_product(const float* x, const float* y, int64_t n) {
  V total = hn::Zero(D());
  for (int64_t i = 0; i < n; i += kLanes)
    total = hn::MulAdd(load(x + i, n - i), load(y + i, n - i), total);
  return sum(total);
}

}  // namespace HWY_NAMESPACE
}  // namespace pewter
HWY_AFTER_NAMESPACE();

#endif
