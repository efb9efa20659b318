// Blocks of the tiled layout (weight_layout.h), already in shared memory, times rows, by matrix
// instructions. bf16 and fp8 matrices meet bf16 rows, sums are f32; fp8 sums the exact products of
// 128 inputs first and scales that. int4 and int8 matrices meet coded rows (coded_rows.cuh): their
// products and the sums of 128 of them are exact integers, scaled and added in f32.
#pragma once

#include "backend/cuda/common/kernel.cuh"
#include "backend/cuda/common/matrix.cuh"
#include "backend/cuda/linear/coded_rows.cuh"
#include "backend/cuda/linear/stream.h"

namespace pewter::cuda {

// A lane's place: outputs g and g + 8 of a tile, columns 2t and 2t + 1. The warp's number comes
// from one lane, so that the compiler knows that all lanes branch alike.
struct Lane {
  int lane, warp, g, t;
  __device__ Lane()
      : lane(threadIdx.x % kWarp),
        warp(__shfl_sync(0xFFFFFFFFu, static_cast<int>(threadIdx.x) / kWarp, 0)),
        g(lane / 4),
        t(lane % 4) {}
};

__device__ inline uint4 load_shared16(uint32_t at) {
  uint4 v;
  asm volatile("ld.shared.v4.u32 {%0, %1, %2, %3}, [%4];"
               : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
               : "r"(at)
               : "memory");
  return v;
}
__device__ inline uint32_t load_shared4(uint32_t at) {
  uint32_t v;
  asm volatile("ld.shared.u32 %0, [%1];" : "=r"(v) : "r"(at) : "memory");
  return v;
}
__device__ inline uint32_t load_shared2(uint32_t at) {
  uint16_t v;
  asm volatile("ld.shared.u16 %0, [%1];" : "=h"(v) : "r"(at) : "memory");
  return v;
}

// Two e4m3 codes as bf16. Their exponent and mantissa fall into place as a bf16 of 2⁻¹²⁰ times the
// value, subnormal codes included; the product with 2¹²⁰ is exact.
__device__ inline uint32_t bf16x2_of_e4m3(uint32_t codes) {
  const uint32_t spread = __byte_perm(codes, 0, 0x1404);  // bytes 0 x0 0 x1, each in a high byte
  const uint32_t bits = ((spread & 0x7F007F00u) >> 4) | (spread & 0x80008000u);
  const uint32_t power = 0x7B807B80u;
  const __nv_bfloat162 d = __hmul2(*reinterpret_cast<const __nv_bfloat162*>(&bits),
                                   *reinterpret_cast<const __nv_bfloat162*>(&power));
  return *reinterpret_cast<const uint32_t*>(&d);
}

// The rows a lane multiplies by, bf16 or coded: column g of each operand, and what scales the
// columns 2t and 2t + 1 of coded ones.
template <int kTiles, bool kShared>
struct Inputs;
template <int kTiles>
struct Inputs<kTiles, true> {
  uint32_t row[kTiles];  // addresses in shared memory; zeros behind a row's inputs
  uint32_t scales[kTiles][2];

  __device__ uint4 load(int j, int k) const { return load_shared16(row[j] + 2 * k); }
  __device__ uint4 load_codes(int j, int k) const { return load(j, k); }
  __device__ GroupScale scale(int j, int column, int group) const {
    return load_shared_scale(scales[j][column] + 8 * group);
  }
};
template <int kTiles>
struct Inputs<kTiles, false> {
  const uint8_t* row[kTiles];
  const GroupScale* scales[kTiles][2];
  int k_end = 0;  // bf16: inputs of a row; negated when it may not be read by 16 bytes

  __device__ uint4 load(int j, int k) const {
    if (k + 8 <= k_end) return *reinterpret_cast<const uint4*>(row[j] + 2 * k);
    uint32_t word[4];
#pragma unroll
    for (int i = 0; i < 4; ++i) word[i] = element(j, k + 2 * i) | element(j, k + 2 * i + 1) << 16;
    return make_uint4(word[0], word[1], word[2], word[3]);
  }
  __device__ uint32_t element(int j, int k) const {
    return k < abs(k_end) ? *reinterpret_cast<const uint16_t*>(row[j] + 2 * k) : 0;
  }
  __device__ uint4 load_codes(int j, int k) const {
    return *reinterpret_cast<const uint4*>(row[j] + 2 * k);
  }
  __device__ GroupScale scale(int j, int column, int group) const {
    return scales[j][column][group];
  }
};

// What a warp has to know of a matrix to multiply its blocks.
struct BlockFormat {
  WeightFormat format;
  DType scale_dtype;
  bool has_zeros;
  int block_bytes;
};

template <int kTiles>
using Sums = float[kTiles][4];

// sums += scale · part, for outputs g and g + 8.
template <int kTiles>
__device__ inline void add_scaled(const Sums<kTiles>& part, float low, float high,
                                  Sums<kTiles>& sums) {
#pragma unroll
  for (int j = 0; j < kTiles; ++j)
#pragma unroll
    for (int i = 0; i < 4; ++i) sums[j][i] = fmaf(i < 2 ? low : high, part[j][i], sums[j][i]);
}

// sums += scale of the output · scale of the row's group · integer sum
template <int kTiles>
using CodeSums = int32_t[kTiles][4];
template <int kTiles, bool kShared>
__device__ inline void add_codes(const CodeSums<kTiles>& high, const CodeSums<kTiles>& low,
                                 const Inputs<kTiles, kShared>& x, int group,
                                 const float (&scale)[2], Sums<kTiles>& sums) {
#pragma unroll
  for (int j = 0; j < kTiles; ++j)
#pragma unroll
    for (int column = 0; column < 2; ++column) {
      const float by = x.scale(j, column, group).scale;
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const int i = 2 * half + column;
        const int32_t sum = (high[j][i] << 8) + low[j][i];
        sums[j][i] = fmaf(scale[half] * by, static_cast<float>(sum), sums[j][i]);
      }
    }
}

// Takes zero points, as integers like the products, off the sums of a group.
template <int kTiles, bool kShared>
__device__ inline void take_zeros(const Inputs<kTiles, kShared>& x, int group,
                                  const int32_t (&zero)[2], CodeSums<kTiles>& sums) {
#pragma unroll
  for (int j = 0; j < kTiles; ++j)
#pragma unroll
    for (int i = 0; i < 4; ++i) sums[j][i] -= zero[i / 2] * x.scale(j, i % 2, group).sum;
}

// Each of these multiplies `blocks` blocks, the first of which is block `block` of its tile, at
// shared address `at`, and the others every `step` blocks behind.
template <int kTiles, bool kShared>
__device__ inline void multiply_int4(const BlockFormat& w, uint32_t at, int blocks, int block,
                                     int step, const Lane& me, const Inputs<kTiles, kShared>& x,
                                     Sums<kTiles>& sums) {
#pragma unroll 1
  for (; blocks > 0; --blocks, block += step, at += step * w.block_bytes) {
    const uint32_t tail = at + 2 * kRecordBytes;
    float scale[2];
    int zeros_at = 32;
    if (w.scale_dtype == DType::kF32) {
      scale[0] = __uint_as_float(load_shared4(tail + 8 * me.g));
      scale[1] = __uint_as_float(load_shared4(tail + 8 * me.g + 4));
      zeros_at = 64;
    } else {
      const uint32_t both = load_shared4(tail + 4 * me.g);
      const float2 half = __half22float2(*reinterpret_cast<const __half2*>(&both));
      const bool is_half = w.scale_dtype == DType::kF16;
      scale[0] = is_half ? half.x : __uint_as_float(both << 16);
      scale[1] = is_half ? half.y : __uint_as_float(both & 0xFFFF0000u);
    }
    CodeSums<kTiles> high, low;
#pragma unroll
    for (int record = 0; record < 2; ++record) {
      const uint4 word = load_shared16(at + record * kRecordBytes + me.lane * 16);
#pragma unroll
      for (int s = 0; s < 2; ++s) {
        const uint32_t first = s == 0 ? word.x : word.z, second = s == 0 ? word.y : word.w;
        // 16·(code − 8): in the tile a nibble is code − 8 in two's complement.
        const uint32_t a[4] = {first << 4 & 0xF0F0F0F0u, first & 0xF0F0F0F0u,
                               second << 4 & 0xF0F0F0F0u, second & 0xF0F0F0F0u};
#pragma unroll
        for (int j = 0; j < kTiles; ++j) {
          const uint4 b = x.load_codes(j, 128 * block + 64 * record + 32 * s + 8 * me.t);
          if (record == 0 && s == 0) {
            multiply(high[j], a, b.x, b.y);
            multiply(low[j], a, b.z, b.w);
          } else {
            multiply_add(high[j], a, b.x, b.y);
            multiply_add(low[j], a, b.z, b.w);
          }
        }
      }
    }
    if (w.has_zeros) {
      const uint32_t both = load_shared2(tail + zeros_at + 2 * me.g);
      const int32_t zero[2] = {16 * (static_cast<int32_t>(both & 0xFFu) - 8),
                               16 * (static_cast<int32_t>(both >> 8) - 8)};
      take_zeros<kTiles, kShared>(x, block, zero, low);
    }
    scale[0] *= 0.0625f;
    scale[1] *= 0.0625f;
    add_codes<kTiles, kShared>(high, low, x, block, scale, sums);
  }
}

template <int kTiles, bool kShared>
__device__ inline void multiply_int8(const BlockFormat& w, uint32_t at, int blocks, int block,
                                     int step, const Lane& me, const Inputs<kTiles, kShared>& x,
                                     Sums<kTiles>& sums) {
  constexpr float kScale[2] = {1.0f, 1.0f};  // a row's is applied to its sum
#pragma unroll 1
  for (; blocks > 0; --blocks, block += step, at += step * w.block_bytes) {
    CodeSums<kTiles> high, low;
#pragma unroll
    for (int record = 0; record < 4; ++record) {
      const uint4 word = load_shared16(at + record * kRecordBytes + me.lane * 16);
      const uint32_t a[4] = {word.x, word.y, word.z, word.w};
#pragma unroll
      for (int j = 0; j < kTiles; ++j) {
        const uint4 b = x.load_codes(j, 128 * block + 32 * record + 8 * me.t);
        if (record == 0) {
          multiply(high[j], a, b.x, b.y);
          multiply(low[j], a, b.z, b.w);
        } else {
          multiply_add(high[j], a, b.x, b.y);
          multiply_add(low[j], a, b.z, b.w);
        }
      }
    }
    add_codes<kTiles, kShared>(high, low, x, block, kScale, sums);
  }
}

template <int kTiles, bool kShared>
__device__ inline void multiply_fp8(const BlockFormat& w, uint32_t at, int blocks, int block,
                                    int step, const Lane& me, const Inputs<kTiles, kShared>& x,
                                    Sums<kTiles>& sums) {
#pragma unroll 1
  for (; blocks > 0; --blocks, block += step, at += step * w.block_bytes) {
    int k = 128 * block + 8 * me.t;
    Sums<kTiles> part;
#pragma unroll
    for (int record = 0; record < 4; ++record, k += 32) {
      const uint4 word = load_shared16(at + record * kRecordBytes + me.lane * 16);
      uint4 b[kTiles];
#pragma unroll
      for (int j = 0; j < kTiles; ++j) b[j] = x.load(j, k);
#pragma unroll
      for (int s = 0; s < 2; ++s) {
        const uint32_t low = s == 0 ? word.x : word.z, high = s == 0 ? word.y : word.w;
        const uint32_t a[4] = {bf16x2_of_e4m3(low), bf16x2_of_e4m3(low >> 16), bf16x2_of_e4m3(high),
                               bf16x2_of_e4m3(high >> 16)};
#pragma unroll
        for (int j = 0; j < kTiles; ++j) {
          const uint32_t b0 = s == 0 ? b[j].x : b[j].z, b1 = s == 0 ? b[j].y : b[j].w;
          if (record == 0 && s == 0)
            multiply(part[j], a, b0, b1);
          else
            multiply_add(part[j], a, b0, b1);
        }
      }
    }
    const float scale = __uint_as_float(load_shared4(at + 4 * kRecordBytes));
    add_scaled<kTiles>(part, scale, scale, sums);
  }
}

template <int kTiles, bool kShared>
__device__ inline void multiply_bf16(uint32_t at, int blocks, int block, int step, const Lane& me,
                                     const Inputs<kTiles, kShared>& x, Sums<kTiles>& sums) {
#pragma unroll 1
  for (; blocks > 0; --blocks, block += step, at += step * 4 * static_cast<int>(kRecordBytes)) {
    const int k = 64 * block + 16 * me.t;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      uint4 b[kTiles];
#pragma unroll
      for (int j = 0; j < kTiles; ++j) b[j] = x.load(j, k + 8 * half);
#pragma unroll
      for (int s = 0; s < 2; ++s) {
        const uint4 word = load_shared16(at + (2 * half + s) * kRecordBytes + me.lane * 16);
        const uint32_t a[4] = {word.x, word.y, word.z, word.w};
#pragma unroll
        for (int j = 0; j < kTiles; ++j)
          multiply_add(sums[j], a, s == 0 ? b[j].x : b[j].z, s == 0 ? b[j].y : b[j].w);
      }
    }
  }
}

template <int kTiles, bool kShared>
__device__ inline void multiply_blocks(const BlockFormat& w, uint32_t at, int blocks, int block,
                                       int step, const Lane& me, const Inputs<kTiles, kShared>& x,
                                       Sums<kTiles>& sums) {
  switch (w.format) {
    case WeightFormat::kInt4Group128:
      return multiply_int4<kTiles, kShared>(w, at, blocks, block, step, me, x, sums);
    case WeightFormat::kFp8Block128:
      return multiply_fp8<kTiles, kShared>(w, at, blocks, block, step, me, x, sums);
    case WeightFormat::kInt8Row:
      return multiply_int8<kTiles, kShared>(w, at, blocks, block, step, me, x, sums);
    default:
      return multiply_bf16<kTiles, kShared>(at, blocks, block, step, me, x, sums);
  }
}

}  // namespace pewter::cuda
