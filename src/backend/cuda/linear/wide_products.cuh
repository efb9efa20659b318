// One block of k of a few tiles times many rows, by one warp: both in a stage of shared memory, the
// weights as fragments.cuh has them, the rows as 256 bytes of 128 inputs (bf16 matrices: 128 bytes
// of 64) whose 16-byte pieces are swizzled so that eight lanes that read at once hit different
// banks. Fragments of weights are unpacked once for all rows, rows read once for all tiles. The
// bits are those of fragments.cuh: the same sums in the same order. Only sums below 2⁻¹⁰² are not:
// as halves they carry a factor of 2⁻²⁴ until the end, and lose bits there.
#pragma once

#include "backend/cuda/linear/fragments.cuh"

namespace pewter::cuda {

// A format in one register: there is none to spare.
using WideKind = uint32_t;
constexpr WideKind kWideInt4 = 0, kHalfScales = 1, kWideHalves = 2, kWideScales = 4, kZeros = 8,
                   kWideInt8 = 16, kWideFp8 = 32, kWideBf16 = 64;
__device__ inline WideKind wide_kind(const TileStack& w, bool halves) {
  switch (w.format) {
    case WeightFormat::kInt8Row:
      return kWideInt8;
    case WeightFormat::kFp8Block128:
      return kWideFp8;
    case WeightFormat::kInt4Group128:
      return kWideInt4 | (halves ? kWideHalves : 0) |
             (w.scale_dtype == DType::kF16 ? kHalfScales : 0) |
             (w.scale_dtype == DType::kF32 ? kWideScales : 0) | (w.has_zeros ? kZeros : 0);
    default:
      return kWideBf16;
  }
}
// What a slice's sums are multiplied by at last.
__device__ inline float wide_unit(WideKind kind) {
  return (kind & kWideHalves) != 0 ? 0x1p24f : 1.0f;
}

// Where piece `piece` of a row lies. Lanes read four pieces that are neighbours, of bf16 every
// second one.
constexpr int kWideRowBytes = 256;
__device__ inline int swizzled(int row, int piece, bool is_bf16) {
  return row * kWideRowBytes + (piece ^ (is_bf16 ? row & 1 : (row & 1) << 2)) * 16;
}

// A lane's view of a stage's rows: column g of each operand.
struct WideRows {
  uint32_t even, odd;  // of pieces a lane reads in turn
  uint32_t scales;     // of rows 2t and 2t + 1, coded rows

  // rows: the address of the warp's first; scales: of its first row's.
  __device__ WideRows(uint32_t rows, uint32_t first_scale, bool is_bf16, const Lane& me) {
    even = rows + swizzled(me.g, is_bf16 ? 2 * me.t : me.t, is_bf16);
    odd = even ^ (is_bf16 ? 16u : 64u);
    scales = first_scale + 16 * me.t;
  }
  // Inputs 32s + 8t ….
  __device__ uint4 load(int operand, int s) const {
    return load_shared16((s % 2 == 0 ? even : odd) + s / 2 * 128 + operand * 8 * kWideRowBytes);
  }
  // bf16: inputs 16t + 8·half … of block `block`.
  __device__ uint4 load(int operand, int block, int half) const {
    return load_shared16((half == 0 ? even : odd) + block * 128 + operand * 8 * kWideRowBytes);
  }
  // Of columns 2t and 2t + 1: scale, sum, scale, sum.
  __device__ uint4 load_scales(int operand) const { return load_shared16(scales + operand * 64); }
};

// d = a · b + c, a unsigned.
__device__ inline void multiply_unsigned(int32_t (&d)[4], const uint32_t (&a)[4], uint32_t b0,
                                         uint32_t b1, const int32_t (&c)[4]) {
  asm volatile(
      "mma.sync.aligned.m16n8k32.row.col.s32.u8.s8.s32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, "
      "{%8, %9}, {%10, %11, %12, %13};"
      : "=r"(d[0]), "=r"(d[1]), "=r"(d[2]), "=r"(d[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1), "r"(c[0]), "r"(c[1]),
        "r"(c[2]), "r"(c[3]));
}

// sums += scale of the output · scale of the row's group · integer sum
__device__ inline void add_integers(const int32_t (&high)[4], const int32_t (&low)[4],
                                    const float (&scale)[2], float by0, float by1,
                                    float (&sums)[4]) {
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const float factor = scale[i / 2] * (i % 2 == 0 ? by0 : by1);
    sums[i] = fmaf(factor, static_cast<float>((high[i] << 8) + low[i]), sums[i]);
  }
}

// Whether a warp has so little to multiply that it would wait for its own instructions.
template <int kRows, int kOwn>
constexpr bool kShort = kRows * kOwn == 8;

// at: addresses of the tiles' blocks.
template <bool kUsual, int kRows, int kOwn>
__device__ inline void multiply_wide_int4(WideKind kind, const uint32_t (&at)[kOwn], const Lane& me,
                                          const WideRows& x, Sums<kRows> (&sums)[kOwn]) {
  const bool is_wide = !kUsual && (kind & kWideScales) != 0, is_half = (kind & kHalfScales) != 0;
  uint4 record[kOwn][2];
  uint32_t a[kOwn][4][4];
  float scale[kOwn][2];
  int32_t zero[kOwn][2];
#pragma unroll
  for (int tile = 0; tile < kOwn; ++tile) {
    const uint32_t tail = at[tile] + 2 * kRecordBytes;
    record[tile][0] = load_shared16(at[tile] + me.lane * 16);
    record[tile][1] = load_shared16(at[tile] + kRecordBytes + me.lane * 16);
    const uint32_t both = load_shared4(tail + (is_wide ? 8 : 4) * me.g);
    if (is_wide) {
      scale[tile][0] = __uint_as_float(both);
      scale[tile][1] = __uint_as_float(load_shared4(tail + 8 * me.g + 4));
    } else {
      const float2 half = __half22float2(*reinterpret_cast<const __half2*>(&both));
      scale[tile][0] = is_half ? half.x : __uint_as_float(both << 16);
      scale[tile][1] = is_half ? half.y : __uint_as_float(both & 0xFFFF0000u);
    }
    scale[tile][1] *= 0.0625f;
    zero[tile][0] = 8, zero[tile][1] = 8 * 16;
    if (!kUsual && (kind & kZeros) != 0) {
      const uint32_t codes = load_shared2(tail + (is_wide ? 64 : 32) + 2 * me.g);
      zero[tile][0] = static_cast<int32_t>(codes & 0xFFu);
      zero[tile][1] = static_cast<int32_t>(codes >> 8) * 16;
    }
  }
#pragma unroll
  for (int tile = 0; tile < kOwn; ++tile)
#pragma unroll
    for (int s = 0; s < 4; ++s) {
      const uint4& word = record[tile][s / 2];
      const uint32_t first = s % 2 == 0 ? word.x : word.z, second = s % 2 == 0 ? word.y : word.w;
      // Of outputs g + 8 sixteen times the code.
      a[tile][s][0] = first & 0x0F0F0F0Fu, a[tile][s][1] = first & 0xF0F0F0F0u;
      a[tile][s][2] = second & 0x0F0F0F0Fu, a[tile][s][3] = second & 0xF0F0F0F0u;
    }
#pragma unroll
  for (int j = 0; j < kTiles<kRows>; ++j) {
    const uint4 by = x.load_scales(j);
    const auto sum0 = static_cast<int32_t>(by.y), sum1 = static_cast<int32_t>(by.w);
    int32_t high[kOwn][4], low[kOwn][4];
    int32_t more_high[kOwn][4], more_low[kOwn][4];  // of 8 rows: chains of two instructions
#pragma unroll
    for (int s = 0; s < 4; ++s) {
      const uint4 b = x.load(j, s);
#pragma unroll
      for (int tile = 0; tile < kOwn; ++tile) {
        if (kShort<kRows, kOwn> && s == 2) {
          multiply_unsigned(more_high[tile], a[tile][s], b.x, b.y);
          multiply_unsigned(more_low[tile], a[tile][s], b.z, b.w);
        } else if (kShort<kRows, kOwn> && s == 3) {
          multiply_add_unsigned(more_high[tile], a[tile][s], b.x, b.y);
          multiply_add_unsigned(more_low[tile], a[tile][s], b.z, b.w);
        } else if (s == 0) {
          // What zero points take away is where the sum of low bytes begins.
          const int32_t begin[4] = {-zero[tile][0] * sum0, -zero[tile][0] * sum1,
                                    -zero[tile][1] * sum0, -zero[tile][1] * sum1};
          multiply_unsigned(high[tile], a[tile][s], b.x, b.y);
          multiply_unsigned(low[tile], a[tile][s], b.z, b.w, begin);
        } else {
          multiply_add_unsigned(high[tile], a[tile][s], b.x, b.y);
          multiply_add_unsigned(low[tile], a[tile][s], b.z, b.w);
        }
      }
    }
#pragma unroll
    for (int tile = 0; tile < kOwn; ++tile) {
      if constexpr (kShort<kRows, kOwn>)
#pragma unroll
        for (int i = 0; i < 4; ++i)
          high[tile][i] += more_high[tile][i], low[tile][i] += more_low[tile][i];
      add_integers(high[tile], low[tile], scale[tile], __uint_as_float(by.x), __uint_as_float(by.z),
                   sums[tile][j]);
    }
  }
}

// d = a · b + c in f16.
__device__ inline void multiply_halves(float (&d)[4], const uint32_t (&a)[4], uint32_t b0,
                                       uint32_t b1, float c0, float c1, float c2, float c3) {
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, "
      "{%8, %9}, {%10, %11, %12, %13};"
      : "=f"(d[0]), "=f"(d[1]), "=f"(d[2]), "=f"(d[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1), "f"(c0), "f"(c1), "f"(c2),
        "f"(c3));
}

// Scales of 16 bits, no zero points, rows in halves.
template <int kRows, int kOwn>
__device__ inline void multiply_wide_halves(WideKind kind, const uint32_t (&at)[kOwn],
                                            const Lane& me, const WideRows& x,
                                            Sums<kRows> (&sums)[kOwn]) {
  uint4 record[kOwn][2];
  uint32_t scales[kOwn];
#pragma unroll
  for (int tile = 0; tile < kOwn; ++tile) {
    record[tile][0] = load_shared16(at[tile] + me.lane * 16);
    record[tile][1] = load_shared16(at[tile] + kRecordBytes + me.lane * 16);
    scales[tile] = load_shared4(at[tile] + 2 * kRecordBytes + 4 * me.g);
  }
  // With registers for them two chains of instructions: what both sum is exact in any order.
  constexpr int kChains = kOwn == 1 ? 2 : 1;
  Sums<kRows> part[kChains][kOwn];
  float by[kTiles<kRows>][2];
#pragma unroll
  for (int s = 0; s < 4; ++s) {
    uint4 b[kTiles<kRows>];
#pragma unroll
    for (int j = 0; j < kTiles<kRows>; ++j) b[j] = x.load(j, s);
#pragma unroll
    for (int h = 0; h < 2; ++h)
#pragma unroll
      for (int tile = 0; tile < kOwn; ++tile) {
        const uint4& four = record[tile][s / 2];
        const uint32_t word = s % 2 == 0 ? (h == 0 ? four.x : four.y) : (h == 0 ? four.z : four.w);
        // Of outputs g + 8 sixteen times the code.
        const uint32_t a[4] = {word & 0x000F000Fu, word & 0x00F000F0u, word >> 8 & 0x000F000Fu,
                               word >> 8 & 0x00F000F0u};
#pragma unroll
        for (int j = 0; j < kTiles<kRows>; ++j) {
          const uint32_t b0 = h == 0 ? b[j].x : b[j].z, b1 = h == 0 ? b[j].y : b[j].w;
          float(&d)[4] = part[h % kChains][tile][j];
          if (s == 0 && h == 0) {
            const uint4 scale = x.load_scales(j);
            by[j][0] = __uint_as_float(scale.x), by[j][1] = __uint_as_float(scale.z);
            const float begin0 = __uint_as_float(scale.y), begin1 = __uint_as_float(scale.w);
            multiply_halves(d, a, b0, b1, begin0, begin1, 16 * begin0, 16 * begin1);
          } else if (s == 0 && h < kChains) {
            multiply_halves(d, a, b0, b1, 0, 0, 0, 0);
          } else {
            multiply_halves(d, a, b0, b1, d[0], d[1], d[2], d[3]);
          }
        }
      }
  }
#pragma unroll
  for (int tile = 0; tile < kOwn; ++tile) {
    const float2 half = __half22float2(*reinterpret_cast<const __half2*>(&scales[tile]));
    const bool is_half = (kind & kHalfScales) != 0;
    const float scale[2] = {
        is_half ? half.x : __uint_as_float(scales[tile] << 16),
        (is_half ? half.y : __uint_as_float(scales[tile] & 0xFFFF0000u)) * 0.0625f};
#pragma unroll
    for (int j = 0; j < kTiles<kRows>; ++j)
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        float sum = part[0][tile][j][i];
        if constexpr (kChains > 1) sum += part[1][tile][j][i];
        sums[tile][j][i] = fmaf(scale[i / 2] * by[j][i % 2], sum, sums[tile][j][i]);
      }
  }
}

template <int kRows, int kOwn>
__device__ inline void multiply_wide_int8(const uint32_t (&at)[kOwn], const Lane& me,
                                          const WideRows& x, Sums<kRows> (&sums)[kOwn]) {
  constexpr float kScale[2] = {1.0f, 1.0f};  // a row's is applied to its sum
  uint32_t a[kOwn][4][4];
#pragma unroll
  for (int tile = 0; tile < kOwn; ++tile)
#pragma unroll
    for (int s = 0; s < 4; ++s) {
      const uint4 record = load_shared16(at[tile] + s * kRecordBytes + me.lane * 16);
      a[tile][s][0] = record.x, a[tile][s][1] = record.y;
      a[tile][s][2] = record.z, a[tile][s][3] = record.w;
    }
#pragma unroll
  for (int j = 0; j < kTiles<kRows>; ++j) {
    const uint4 by = x.load_scales(j);
    int32_t high[kOwn][4], low[kOwn][4];
#pragma unroll
    for (int s = 0; s < 4; ++s) {
      const uint4 b = x.load(j, s);
#pragma unroll
      for (int tile = 0; tile < kOwn; ++tile)
        if (s == 0) {
          multiply(high[tile], a[tile][s], b.x, b.y);
          multiply(low[tile], a[tile][s], b.z, b.w);
        } else {
          multiply_add(high[tile], a[tile][s], b.x, b.y);
          multiply_add(low[tile], a[tile][s], b.z, b.w);
        }
    }
#pragma unroll
    for (int tile = 0; tile < kOwn; ++tile)
      add_integers(high[tile], low[tile], kScale, __uint_as_float(by.x), __uint_as_float(by.z),
                   sums[tile][j]);
  }
}

template <int kRows, int kOwn>
__device__ inline void multiply_wide_fp8(const uint32_t (&at)[kOwn], const Lane& me,
                                         const WideRows& x, Sums<kRows> (&sums)[kOwn]) {
  Sums<kRows> part[kOwn];
#pragma unroll
  for (int r = 0; r < 4; ++r) {
    uint4 word[kOwn], b[kTiles<kRows>];
#pragma unroll
    for (int tile = 0; tile < kOwn; ++tile)
      word[tile] = load_shared16(at[tile] + r * kRecordBytes + me.lane * 16);
#pragma unroll
    for (int j = 0; j < kTiles<kRows>; ++j) b[j] = x.load(j, r);
#pragma unroll
    for (int s = 0; s < 2; ++s)
#pragma unroll
      for (int tile = 0; tile < kOwn; ++tile) {
        const uint32_t low = s == 0 ? word[tile].x : word[tile].z,
                       high = s == 0 ? word[tile].y : word[tile].w;
        const uint2 first = bf16_of_e4m3(low), second = bf16_of_e4m3(high);
        const uint32_t a[4] = {first.x, first.y, second.x, second.y};
#pragma unroll
        for (int j = 0; j < kTiles<kRows>; ++j) {
          const uint32_t b0 = s == 0 ? b[j].x : b[j].z, b1 = s == 0 ? b[j].y : b[j].w;
          if (r == 0 && s == 0)
            multiply(part[tile][j], a, b0, b1);
          else
            multiply_add(part[tile][j], a, b0, b1);
        }
      }
  }
#pragma unroll
  for (int tile = 0; tile < kOwn; ++tile)
    add_scaled<false, kRows>(part[tile], __uint_as_float(load_shared4(at[tile] + 4 * kRecordBytes)),
                             sums[tile]);
}

// Block `block` of the stage's two.
template <int kRows, int kOwn>
__device__ inline void multiply_wide_bf16(const uint32_t (&at)[kOwn], int block, const Lane& me,
                                          const WideRows& x, Sums<kRows> (&sums)[kOwn]) {
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    uint4 b[kTiles<kRows>];
#pragma unroll
    for (int j = 0; j < kTiles<kRows>; ++j) b[j] = x.load(j, block, half);
#pragma unroll
    for (int s = 0; s < 2; ++s)
#pragma unroll
      for (int tile = 0; tile < kOwn; ++tile) {
        const uint4 r =
            load_shared16(at[tile] + (4 * block + 2 * half + s) * kRecordBytes + me.lane * 16);
        const uint32_t a[4] = {r.x, r.y, r.z, r.w};
#pragma unroll
        for (int j = 0; j < kTiles<kRows>; ++j)
          multiply_add(sums[tile][j], a, s == 0 ? b[j].x : b[j].z, s == 0 ? b[j].y : b[j].w);
      }
  }
}

// Calls f(addresses, sums) for all tiles at once, or for each: integers of two tiles take more
// registers than there are.
template <int kRows, int kOwn, typename F>
__device__ inline void for_tiles(const uint32_t (&at)[kOwn], Sums<kRows> (&sums)[kOwn],
                                 const F& f) {
  if constexpr (kOwn == 1)
    f(at, sums);
  else
#pragma unroll
    for (int i = 0; i < kOwn; ++i) {
      const uint32_t one[1] = {at[i]};
      f(one, reinterpret_cast<Sums<kRows>(&)[1]>(sums[i]));
    }
}

// has_two: of bf16, whether the stage has a second block.
template <int kRows, int kOwn>
__device__ inline void multiply_wide(WideKind kind, const uint32_t (&at)[kOwn], bool has_two,
                                     const Lane& me, const WideRows& x, Sums<kRows> (&sums)[kOwn]) {
  if (kRows > 8 && (kind & kWideHalves) != 0) {
    multiply_wide_halves<kRows>(kind, at, me, x, sums);
  } else if (kind == kWideInt8) {
    multiply_wide_int8<kRows>(at, me, x, sums);
  } else if (kind == kWideFp8) {
    multiply_wide_fp8<kRows>(at, me, x, sums);
  } else if (kind == kWideBf16) {
#pragma unroll 1
    for (int block = 0; block <= static_cast<int>(has_two); ++block)
      multiply_wide_bf16<kRows>(at, block, me, x, sums);
  } else {
    for_tiles<kRows>(at, sums, [&](const auto& tiles, auto& to) {
      if (kind <= (kWideInt4 | kHalfScales))
        multiply_wide_int4<true, kRows>(kind, tiles, me, x, to);
      else
        multiply_wide_int4<false, kRows>(kind, tiles, me, x, to);
    });
  }
}

}  // namespace pewter::cuda
