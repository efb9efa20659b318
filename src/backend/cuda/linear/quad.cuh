// Blocks of int4 times one row. Matrix instructions have eight columns, of which a row takes two,
// its high bytes and its low ones (coded_rows.cuh). So the columns are four of its groups of 128
// inputs, and the four blocks of k that meet them (a *quad*) each find their sums in other lanes,
// which scale them all at once: half as many instructions as one block after another
// (fragments.cuh), whose products these are bit for bit.
#pragma once

#include "backend/cuda/linear/fragments.cuh"

namespace pewter::cuda {

constexpr int kQuad = 4;  // blocks
constexpr int kQuadBytes =
    kQuad * static_cast<int>(block_shape(WeightFormat::kInt4Group128, DType::kBF16, false).bytes());

// Four groups of the row as a lane multiplies them: its column is of group g / 2, of high bytes or
// of low ones.
struct QuadCodes {
  uint32_t word[4][2];  // operand b of a step; step 2r + h: inputs 64r + 8t + 4h … and 32 behind
  float scale;          // of the group

  // x: inputs 32s + 8t … 32s + 8t + 7 of the group for each s.
  __device__ void code(const uint4 (&x)[4], const Lane& me) {
    uint32_t pair = 0;
#pragma unroll
    for (const uint4& eight : x) {
      pair = __vmaxu2(pair, __vmaxu2(eight.x & 0x7FFF7FFFu, eight.y & 0x7FFF7FFFu));
      pair = __vmaxu2(pair, __vmaxu2(eight.z & 0x7FFF7FFFu, eight.w & 0x7FFF7FFFu));
    }
#pragma unroll
    for (int offset = 1; offset < 4; offset *= 2)
      pair = __vmaxu2(pair, __shfl_xor_sync(0xFFFFFFFFu, pair, offset));
    const GroupPower power(max(pair & 0xFFFFu, pair >> 16));
    scale = power.scale();
    // A high byte is that of the integer and 128 (FourCodes).
    const bool high = me.g % 2 == 0;
    const float magic = high ? 12582912.0f + 128.0f : 12582912.0f;
    const uint32_t bytes = high ? 0x0051 : 0x0040;
    const auto integers = [&](uint32_t two) {
      const float first = fmaf(__uint_as_float(two << 16), power.to_integer(), magic);
      const float second = fmaf(__uint_as_float(two & 0xFFFF0000u), power.to_integer(), magic);
      return __byte_perm(__float_as_uint(first), __float_as_uint(second), bytes);
    };
#pragma unroll
    for (int s = 0; s < 4; ++s) {
      word[s / 2 * 2][s % 2] = __byte_perm(integers(x[s].x), integers(x[s].y), 0x5410);
      word[s / 2 * 2 + 1][s % 2] = __byte_perm(integers(x[s].z), integers(x[s].w), 0x5410);
    }
  }
};

// A quad of int4 blocks at shared address `at` times its groups: a lane gets what outputs g and
// g + 8 of block t add to their sums.
__device__ inline float2 multiply_quad(bool is_half, uint32_t at, const QuadCodes& x,
                                       const Lane& me) {
  // The codes of outputs g + 8, the high halves of bytes, stay beside those of outputs g: their
  // sums, below 2³⁰, are sixteen times theirs and once those, which are taken away again.
  constexpr uint32_t kOnes[4] = {0x01010101u, 0x01010101u, 0x01010101u, 0x01010101u};
  constexpr int kBytes = kQuadBytes / kQuad;
  int32_t part[kQuad][4], row[4];  // the row's: sums of its integers
  const auto add = [](bool is_first, int32_t(&to)[4], const uint32_t(&codes)[4],
                      const uint32_t(&b)[2]) {
    if (is_first)
      multiply_unsigned(to, codes, b[0], b[1]);
    else
      multiply_add_unsigned(to, codes, b[0], b[1]);
  };
  // Five chains of instructions in turn, so that none waits for the one before it.
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    uint4 words[kQuad];
#pragma unroll
    for (int i = 0; i < kQuad; ++i)
      words[i] = load_shared16(at + i * kBytes + r * kRecordBytes + me.lane * 16);
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      const bool is_first = r == 0 && h == 0;
#pragma unroll
      for (int i = 0; i < kQuad; ++i) {
        const uint32_t first = h == 0 ? words[i].x : words[i].y,
                       second = h == 0 ? words[i].z : words[i].w;
        add(is_first, part[i], {first & 0x0F0F0F0Fu, first, second & 0x0F0F0F0Fu, second},
            x.word[2 * r + h]);
      }
      add(is_first, row, kOnes, x.word[2 * r + h]);
    }
  }

  const uint32_t scales = load_shared4(at + me.t * kBytes + 2 * kRecordBytes + 4 * me.g);
  float2 scale = __half22float2(*reinterpret_cast<const __half2*>(&scales));
  if (!is_half) scale = {__uint_as_float(scales << 16), __uint_as_float(scales & 0xFFFF0000u)};
  const float by = __shfl_sync(0xFFFFFFFFu, x.scale, 8 * me.t);  // of group t
  int32_t own[4];
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const int32_t low = me.t % 2 == 0 ? part[0][i] : part[1][i];
    const int32_t high = me.t % 2 == 0 ? part[2][i] : part[3][i];
    own[i] = me.t < 2 ? low : high;
  }
  const int32_t sum = (row[0] << 8) + row[1];
  const int32_t first = (own[0] << 8) + own[1], both = (own[2] << 8) + own[3];
  return {scale.x * by * static_cast<float>(first - 8 * sum),
          scale.y * 0.0625f * by * static_cast<float>(both - first - 8 * 16 * sum)};
}

}  // namespace pewter::cuda
