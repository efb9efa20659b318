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

// The power of two of a group whose largest |x| has these bits of a bf16: 2^(exponent − 126) is
// above it. Smaller groups than 2⁻¹¹² count as that.
struct GroupPower {
  uint32_t largest;
  int exponent;

  __device__ explicit GroupPower(uint32_t bits)
      : largest(bits), exponent(max(static_cast<int>(bits >> 7), 14)) {}
  __device__ float to_integer() const { return power(140 - exponent); }
  __device__ float scale() const {
    return largest < 0x7F80u ? power(exponent - 140) : __uint_as_float(0x7FC00000u);
  }
  static __device__ float power(int of_two) {
    return __uint_as_float(static_cast<uint32_t>(of_two + 127) << 23);
  }
};

// Four inputs as integers. x: added to 1.5 · 2²³, so that its low half holds the integer.
struct FourCodes {
  uint32_t x[4], high, low;
  int32_t sum;

  __device__ FourCodes(uint32_t first, uint32_t second, float to_integer) {
    uint32_t up[4];
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const uint32_t two = i < 2 ? first : second;
      const uint32_t bits = i % 2 == 0 ? two << 16 : two & 0xFFFF0000u;
      x[i] = __float_as_uint(fmaf(__uint_as_float(bits), to_integer, 12582912.0f));
      up[i] = x[i] + 128;
    }
    low = __byte_perm(__byte_perm(x[0], x[1], 0x0040), __byte_perm(x[2], x[3], 0x0040), 0x5410);
    high =
        __byte_perm(__byte_perm(up[0], up[1], 0x0051), __byte_perm(up[2], up[3], 0x0051), 0x5410);
    sum = __dp4a(static_cast<int32_t>(low), 0x01010101, 0) +
          256 * __dp4a(static_cast<int32_t>(high), 0x01010101, 0);
  }
};

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
  const GroupPower power(max(pair & 0xFFFFu, pair >> 16));
  uint32_t high[2], low[2];
  alignas(16) __half2 pairs[4] = {};
  int32_t sum = 0;
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const FourCodes four(word[2 * half], word[2 * half + 1], power.to_integer());
    if (halves)
#pragma unroll
      for (int i = 0; i < 2; ++i)
        pairs[2 * half + i] = __floats2half2_rn(__uint_as_float(four.x[i]) - 12582912.0f,
                                                __uint_as_float(four.x[i + 2]) - 12582912.0f);
    high[half] = four.high;
    low[half] = four.low;
    sum += four.sum;
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
    *reinterpret_cast<GroupScale*>(row + 2 * width + at / 128 * 8) = {power.scale(), sum};
}

// A warp codes whole groups, several together so that their chains of instructions overlap: of
// group first + i · step of a row of `width` a lane brings inputs 4 · lane … 4 · lane + 3, as bf16.
// None are written from group `end` on. The bits are those of code_inputs; not in place, since two
// lanes share what one of those writes.
template <int kGroups>
__device__ inline void code_groups(const uint2 (&inputs)[kGroups], int first, int step, int end,
                                   int width, uint8_t* row) {
  constexpr uint32_t kAll = 0xFFFFFFFFu;
  const uint32_t lane = threadIdx.x % kWarp;
  uint32_t largest[kGroups];
#pragma unroll
  for (int i = 0; i < kGroups; ++i) {
    const uint32_t pair = __vmaxu2(inputs[i].x & 0x7FFF7FFFu, inputs[i].y & 0x7FFF7FFFu);
    largest[i] = __reduce_max_sync(kAll, max(pair & 0xFFFFu, pair >> 16));
  }
  int32_t sum[kGroups];
  uint8_t* const to = row + lane / 2 * 16 + lane % 2 * 4;
#pragma unroll
  for (int i = 0; i < kGroups; ++i) {
    const int group = first + i * step;
    const FourCodes four(inputs[i].x, inputs[i].y, GroupPower(largest[i]).to_integer());
    sum[i] = __reduce_add_sync(kAll, four.sum);
    if (group < end) {
      *reinterpret_cast<uint32_t*>(to + group * 256) = four.high;
      *reinterpret_cast<uint32_t*>(to + group * 256 + 8) = four.low;
    }
  }
#pragma unroll
  for (int i = 0; i < kGroups; ++i) {
    const int group = first + i * step;
    if (lane == 0 && group < end)
      *reinterpret_cast<GroupScale*>(row + 2 * width + group * 8) = {GroupPower(largest[i]).scale(),
                                                                     sum[i]};
  }
}

}  // namespace pewter::cuda
