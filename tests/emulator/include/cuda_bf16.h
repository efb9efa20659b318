// The few functions of bf16 that kernels use.
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>

struct __nv_bfloat16 {
  unsigned short bits;
};
struct __nv_bfloat162 {
  __nv_bfloat16 x, y;
};

constexpr __nv_bfloat16 __ushort_as_bfloat16(unsigned short bits) { return {bits}; }
constexpr unsigned short __bfloat16_as_ushort(__nv_bfloat16 x) { return x.bits; }
inline float __bfloat162float(__nv_bfloat16 x) {
  return std::bit_cast<float>(static_cast<uint32_t>(x.bits) << 16);
}
inline __nv_bfloat16 __float2bfloat16(float x) {  // to nearest even
  if (std::isnan(x)) return {0x7FFF};
  const auto bits = std::bit_cast<uint32_t>(x);
  return {static_cast<unsigned short>((bits + 0x7FFF + (bits >> 16 & 1)) >> 16)};
}
inline __nv_bfloat162 __floats2bfloat162_rn(float low, float high) {
  return {__float2bfloat16(low), __float2bfloat16(high)};
}
inline __nv_bfloat162 __hmul2(__nv_bfloat162 a, __nv_bfloat162 b) {
  return __floats2bfloat162_rn(__bfloat162float(a.x) * __bfloat162float(b.x),
                               __bfloat162float(a.y) * __bfloat162float(b.y));
}
