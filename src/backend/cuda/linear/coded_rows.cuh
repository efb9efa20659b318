// Rows as integers. A group of 128 inputs shares a power of two that makes its largest |x| a
// 14-bit integer, so that bf16 inputs down to 2⁻⁶ of the largest are exact and none is off by more
// than 2⁻¹⁵ of it: far less than bf16 had rounded. An integer is two signed bytes, 256·high + low,
// which matrix instructions multiply by signed codes without rounding.
//
// A coded row is as long as a bf16 row: inputs 8i … 8i + 7 are 16 bytes, their eight high bytes
// then their eight low ones. Behind the row stand its groups' scales.
//
// Rounded from bf16, an integer has no more than eight significant bits, so that it is an f16 as
// well. Products of many rows by int4 (wide_products.cuh) may want *halves*: inputs 8i … 8i + 7 as
// f16 in the order 0 2 1 3 4 6 5 7, and of a group, in the place of its sum s, the f32 −2⁻²¹ · s.
#pragma once

#include <cuda_fp16.h>

#include "backend/cuda/common/kernel.cuh"
#include "backend/cuda/weight_layout.h"

namespace pewter::cuda {

struct GroupScale {
  float scale;  // x = scale · integer; NaN when an input is not finite
  int32_t sum;  // of the integers
};
__device__ inline GroupScale load_shared_scale(uint32_t at) {
  GroupScale s;
  uint32_t bits;
  asm volatile("ld.shared.v2.u32 {%0, %1}, [%2];" : "=r"(bits), "=r"(s.sum) : "r"(at) : "memory");
  s.scale = __uint_as_float(bits);
  return s;
}

// Bytes from one row to the next, in shared memory and in scratch, bf16 or coded: `width` inputs, a
// multiple of 128, the scales, and 16 bytes so that the eight lanes that read at once hit different
// banks.
__host__ __device__ constexpr int row_pitch(int width) {
  return 2 * width + static_cast<int>(round_up(width / 128 * 8, 128)) + 16;
}

// Sixteen lanes code the 128 inputs of a group, all lanes of a warp at once: each brings eight,
// those at `at` of a row of `width`, as bf16. In place if `row` is where they are.
__device__ inline void code_inputs(const uint4& inputs, int at, bool inside, int width,
                                   uint8_t* row, bool halves = false) {
  const uint32_t word[4] = {inputs.x, inputs.y, inputs.z, inputs.w};
  // |x| of bf16 are in the order of their bits: two at a time.
  uint32_t pair = word[0] & 0x7FFF7FFFu;
#pragma unroll
  for (int i = 1; i < 4; ++i) pair = __vmaxu2(pair, word[i] & 0x7FFF7FFFu);
#pragma unroll
  for (int offset = 8; offset > 0; offset /= 2)
    pair = __vmaxu2(pair, __shfl_xor_sync(0xFFFFFFFFu, pair, offset));
  const uint32_t largest = max(pair & 0xFFFFu, pair >> 16);
  // The largest is below 2^(exponent − 126); smaller groups than 2⁻¹¹² count as that.
  const int exponent = max(static_cast<int>(largest >> 7), 14);
  const float to_integer = __uint_as_float(static_cast<uint32_t>(140 - exponent + 127) << 23);
  // Added to 1.5 · 2²³ a product is rounded to an integer, which the low half of the sum holds.
  uint32_t high[2], low[2];
  alignas(16) __half2 pairs[4] = {};
  int32_t sum = 0;
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    uint32_t x[4], up[4];
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const uint32_t two = word[2 * half + i / 2];
      const uint32_t bits = i % 2 == 0 ? two << 16 : two & 0xFFFF0000u;
      x[i] = __float_as_uint(fmaf(__uint_as_float(bits), to_integer, 12582912.0f));
      up[i] = x[i] + 128;
    }
    if (halves)
#pragma unroll
      for (int i = 0; i < 2; ++i)
        pairs[2 * half + i] = __floats2half2_rn(__uint_as_float(x[i]) - 12582912.0f,
                                                __uint_as_float(x[i + 2]) - 12582912.0f);
    low[half] =
        __byte_perm(__byte_perm(x[0], x[1], 0x0040), __byte_perm(x[2], x[3], 0x0040), 0x5410);
    high[half] =
        __byte_perm(__byte_perm(up[0], up[1], 0x0051), __byte_perm(up[2], up[3], 0x0051), 0x5410);
    sum = __dp4a(static_cast<int32_t>(low[half]), 0x01010101, sum);
    sum += 256 * __dp4a(static_cast<int32_t>(high[half]), 0x01010101, 0);
  }
#pragma unroll
  for (int offset = 8; offset > 0; offset /= 2) sum += __shfl_xor_sync(0xFFFFFFFFu, sum, offset);
  if (!inside) return;
  uint4 eight = make_uint4(high[0], high[1], low[0], low[1]);
  if (halves) {
    eight = *reinterpret_cast<const uint4*>(pairs);
    sum = __float_as_int(static_cast<float>(sum) * -0x1p-21f);
  }
  *reinterpret_cast<uint4*>(row + 2 * at) = eight;
  if (at % 128 == 0)
    *reinterpret_cast<GroupScale*>(row + 2 * width + at / 128 * 8) = {
        largest < 0x7F80u ? __uint_as_float(static_cast<uint32_t>(exponent - 140 + 127) << 23)
                          : __uint_as_float(0x7FC00000u),
        sum};
}

}  // namespace pewter::cuda
