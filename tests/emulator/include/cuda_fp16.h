// The few functions of f16 that kernels use.
#pragma once

#include <cuda_runtime.h>

#include "emulator/half.h"

struct __half {
  unsigned short bits;
};
struct __half2 {
  __half x, y;
};

constexpr __half __ushort_as_half(unsigned short bits) { return {bits}; }
inline float __half2float(__half x) { return emulator::half_value(x.bits); }
inline float2 __half22float2(__half2 x) { return {__half2float(x.x), __half2float(x.y)}; }
inline __half2 __floats2half2_rn(float low, float high) {
  return {{emulator::half_bits(low)}, {emulator::half_bits(high)}};
}
