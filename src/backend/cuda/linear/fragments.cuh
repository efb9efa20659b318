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
__device__ inline uint2 load_shared8(uint32_t at) {
  uint2 v;
  asm volatile("ld.shared.v2.u32 {%0, %1}, [%2];" : "=r"(v.x), "=r"(v.y) : "r"(at) : "memory");
  return v;
}
__device__ inline uint32_t load_shared4(uint32_t at) {
  uint32_t v;
  asm volatile("ld.shared.u32 %0, [%1];" : "=r"(v) : "r"(at) : "memory");
  return v;
}
__device__ inline void store_shared4(uint32_t at, uint32_t v) {
  asm volatile("st.shared.u32 [%0], %1;" ::"r"(at), "r"(v) : "memory");
}
__device__ inline uint32_t load_shared2(uint32_t at) {
  uint16_t v;
  asm volatile("ld.shared.u16 %0, [%1];" : "=h"(v) : "r"(at) : "memory");
  return v;
}

// Four e4m3 codes as bf16, two to a word. Their exponent and mantissa fall into place as a bf16 of
// 2⁻¹²⁰ times the value, subnormal codes included; the product with 2¹²⁰ is exact.
__device__ inline uint2 bf16_of_e4m3(uint32_t codes) {
  uint32_t word[2];  // the codes as signed integers of 16 bits
  asm("prmt.b32 %0, %1, 0, 0x9180;" : "=r"(word[0]) : "r"(codes));
  asm("prmt.b32 %0, %1, 0, 0xB3A2;" : "=r"(word[1]) : "r"(codes));
  const uint32_t power = 0x7B807B80u;
#pragma unroll
  for (uint32_t& two : word) {
    const uint32_t bits = (two << 4) & 0x87F087F0u;
    const __nv_bfloat162 d = __hmul2(*reinterpret_cast<const __nv_bfloat162*>(&bits),
                                     *reinterpret_cast<const __nv_bfloat162*>(&power));
    two = *reinterpret_cast<const uint32_t*>(&d);
  }
  return make_uint2(word[0], word[1]);
}

// A warp multiplies up to kRows rows at once, eight by an instruction: operand j has rows 8j … 8j +
// 7 in its columns. Four rows or fewer are spread: columns 2r and 2r + 1 are row r's, of a coded
// row its high bytes and its low ones, which take one instruction then instead of two.
template <int kRows>
constexpr int kTiles = kRows < 8 ? 1 : kRows / 8;
template <int kRows>
constexpr bool kSpread = kRows == 4;

// Eight inputs of a coded row as a lane multiplies them: high bytes, low bytes; spread, those of
// its column.
template <int kRows>
struct Codes {
  uint32_t word[kSpread<kRows> ? 2 : 4];
};

// The rows a lane multiplies by, bf16 or coded: its column of each operand, and what scales coded
// rows: those of columns 2t and 2t + 1, spread row t.
template <int kRows, bool kShared>
struct Inputs;
template <int kRows>
struct Inputs<kRows, true> {
  static constexpr int kScaled = kSpread<kRows> ? 1 : 2;
  uint32_t row[kTiles<kRows>];  // addresses in shared memory; zeros behind a row's inputs
  uint32_t scales[kTiles<kRows>][kScaled];

  __device__ uint4 load(int j, int k) const { return load_shared16(row[j] + 2 * k); }
  __device__ Codes<kRows> load_codes(int j, int k) const {
    if constexpr (kSpread<kRows>) {
      const uint2 v = load_shared8(row[j] + 2 * k);
      return {{v.x, v.y}};
    } else {
      const uint4 v = load_shared16(row[j] + 2 * k);
      return {{v.x, v.y, v.z, v.w}};
    }
  }
  __device__ GroupScale scale(int j, int column, int group) const {
    return load_shared_scale(scales[j][column] + 8 * group);
  }
};
template <int kRows>
struct Inputs<kRows, false> {
  static constexpr int kScaled = kSpread<kRows> ? 1 : 2;
  const uint8_t* row[kTiles<kRows>];
  const GroupScale* scales[kTiles<kRows>][kScaled];
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
  __device__ Codes<kRows> load_codes(int j, int k) const {
    if constexpr (kSpread<kRows>) {
      const uint2 v = *reinterpret_cast<const uint2*>(row[j] + 2 * k);
      return {{v.x, v.y}};
    } else {
      const uint4 v = *reinterpret_cast<const uint4*>(row[j] + 2 * k);
      return {{v.x, v.y, v.z, v.w}};
    }
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

// Of each operand: outputs g and g + 8 of columns 2t and 2t + 1; spread, [0] and [2] are row t's.
template <int kRows>
using Sums = float[kTiles<kRows>][4];

// sums += scale · part
template <bool kSliced, int kRows>
__device__ inline void add_scaled(const Sums<kRows>& part, float scale, Sums<kRows>& sums) {
#pragma unroll
  for (int j = 0; j < kTiles<kRows>; ++j)
#pragma unroll
    for (int i = 0; i < 4; ++i)
      sums[j][i] = kSliced ? sums[j][i] + scale * part[j][i] : fmaf(scale, part[j][i], sums[j][i]);
}

// Integer sums of a block: of high bytes and of low ones; spread, both in one, and in two halves of
// the block, so that an instruction waits for one before it at most.
template <int kRows>
struct CodeSums {
  static constexpr int kParts = 2;
  int32_t part[kTiles<kRows>][kParts][4];

  // Of the block's four steps of 32 inputs, number `step`.
  template <bool kUnsigned>
  __device__ void multiply_by(int j, int step, const uint32_t (&a)[4], const Codes<kRows>& b) {
    if constexpr (kSpread<kRows>) {
      multiply_part<kUnsigned>(step < 2, part[j][step % 2], a, b.word[0], b.word[1]);
    } else {
#pragma unroll
      for (int p = 0; p < kParts; ++p)
        multiply_part<kUnsigned>(step == 0, part[j][p], a, b.word[2 * p], b.word[2 * p + 1]);
    }
  }
  template <bool kUnsigned>
  static __device__ void multiply_part(bool is_first, int32_t (&to)[4], const uint32_t (&a)[4],
                                       uint32_t b0, uint32_t b1) {
    if (is_first && kUnsigned)
      multiply_unsigned(to, a, b0, b1);
    else if (kUnsigned)
      multiply_add_unsigned(to, a, b0, b1);
    else if (is_first)
      multiply(to, a, b0, b1);
    else
      multiply_add(to, a, b0, b1);
  }
  // Output g + 8·half, column 2t + column; spread, row t.
  __device__ int32_t sum(int j, int half, int column) const {
    if constexpr (kSpread<kRows>)
      return ((part[j][0][2 * half] + part[j][1][2 * half]) << 8) + part[j][0][2 * half + 1] +
             part[j][1][2 * half + 1];
    else
      return (part[j][0][2 * half + column] << 8) + part[j][1][2 * half + column];
  }

  // sums += scale of the output · scale of the row's group · (integer sum − zero · sum of the
  // row's)
  template <bool kSliced, bool kShared>
  __device__ void add_to(Sums<kRows>& sums, const Inputs<kRows, kShared>& x, int group,
                         const float (&scale)[2], const int32_t (&zero)[2]) const {
#pragma unroll
    for (int j = 0; j < kTiles<kRows>; ++j)
#pragma unroll
      for (int column = 0; column < Inputs<kRows, kShared>::kScaled; ++column) {
        const GroupScale by = x.scale(j, column, group);
#pragma unroll
        for (int half = 0; half < 2; ++half) {
          float& to = sums[j][2 * half + column];
          const float factor = scale[half] * by.scale;
          const auto product = static_cast<float>(sum(j, half, column) - zero[half] * by.sum);
          to = kSliced ? to + factor * product : fmaf(factor, product, to);
        }
      }
  }
};

// Each of these multiplies `blocks` blocks, the first of which is block `block` of its tile, at
// shared address `at`, and the others every `step` blocks behind. With one operand a block's loads
// are all on their way before its first product.
//
// kUsual: scales of 16 bits and no zero points. kSliced: blocks are slices of k, summed by
// themselves before they are added.
template <bool kUsual, bool kSliced, int kRows, bool kShared>
__device__ inline void multiply_int4(const BlockFormat& w, uint32_t at, int blocks, int block,
                                     int step, const Lane& me, const Inputs<kRows, kShared>& x,
                                     Sums<kRows>& sums) {
  constexpr int kOperands = kTiles<kRows>;
  const bool is_wide = !kUsual && w.scale_dtype == DType::kF32,
             is_half = w.scale_dtype == DType::kF16;
  const int zeros_at = is_wide ? 64 : 32;
#pragma unroll 1
  for (; blocks > 0; --blocks, block += step, at += step * w.block_bytes) {
    const uint32_t tail = at + 2 * kRecordBytes;
    const uint4 record[2] = {load_shared16(at + me.lane * 16),
                             load_shared16(at + kRecordBytes + me.lane * 16)};
    const uint32_t both = load_shared4(tail + (is_wide ? 8 : 4) * me.g);
    Codes<kRows> b[4][kOperands];
    if constexpr (kOperands == 1)
#pragma unroll
      for (int s = 0; s < 4; ++s) b[s][0] = x.load_codes(0, 128 * block + 32 * s + 8 * me.t);
    float scale[2];
    if (is_wide) {
      scale[0] = __uint_as_float(both);
      scale[1] = __uint_as_float(load_shared4(tail + 8 * me.g + 4));
    } else {
      const float2 half = __half22float2(*reinterpret_cast<const __half2*>(&both));
      scale[0] = is_half ? half.x : __uint_as_float(both << 16);
      scale[1] = is_half ? half.y : __uint_as_float(both & 0xFFFF0000u);
    }
    int32_t zero[2] = {8, 8 * 16};
    if (!kUsual && w.has_zeros) {
      const uint32_t codes = load_shared2(tail + zeros_at + 2 * me.g);
      zero[0] = static_cast<int32_t>(codes & 0xFFu);
      zero[1] = static_cast<int32_t>(codes >> 8) * 16;
    }
    CodeSums<kRows> products;
#pragma unroll
    for (int s = 0; s < 4; ++s) {
      const uint4& word = record[s / 2];
      const uint32_t first = s % 2 == 0 ? word.x : word.z, second = s % 2 == 0 ? word.y : word.w;
      // Of outputs g + 8 sixteen times the code.
      const uint32_t a[4] = {first & 0x0F0F0F0Fu, first & 0xF0F0F0F0u, second & 0x0F0F0F0Fu,
                             second & 0xF0F0F0F0u};
#pragma unroll
      for (int j = 0; j < kOperands; ++j) {
        if constexpr (kOperands > 1) b[s][j] = x.load_codes(j, 128 * block + 32 * s + 8 * me.t);
        products.template multiply_by<true>(j, s, a, b[s][j]);
      }
    }
    scale[1] *= 0.0625f;
    products.template add_to<kSliced>(sums, x, block, scale, zero);
  }
}

template <bool kSliced, int kRows, bool kShared>
__device__ inline void multiply_int8(const BlockFormat& w, uint32_t at, int blocks, int block,
                                     int step, const Lane& me, const Inputs<kRows, kShared>& x,
                                     Sums<kRows>& sums) {
  constexpr int kOperands = kTiles<kRows>;
  constexpr float kScale[2] = {1.0f, 1.0f};  // a row's is applied to its sum
  constexpr int32_t kZero[2] = {};
#pragma unroll 1
  for (; blocks > 0; --blocks, block += step, at += step * w.block_bytes) {
    uint4 record[4];
    Codes<kRows> b[4][kOperands];
#pragma unroll
    for (int s = 0; s < 4; ++s) {
      record[s] = load_shared16(at + s * kRecordBytes + me.lane * 16);
      if constexpr (kOperands == 1) b[s][0] = x.load_codes(0, 128 * block + 32 * s + 8 * me.t);
    }
    CodeSums<kRows> products;
#pragma unroll
    for (int s = 0; s < 4; ++s) {
      const uint32_t a[4] = {record[s].x, record[s].y, record[s].z, record[s].w};
#pragma unroll
      for (int j = 0; j < kOperands; ++j) {
        if constexpr (kOperands > 1) b[s][j] = x.load_codes(j, 128 * block + 32 * s + 8 * me.t);
        products.template multiply_by<false>(j, s, a, b[s][j]);
      }
    }
    products.template add_to<kSliced>(sums, x, block, kScale, kZero);
  }
}

// A block of fp8 at shared address `at` times columns of 128 inputs each, unscaled. x: inputs
// 32r + 8t … of a lane's column for r = 0 … 3.
__device__ inline void multiply_fp8_block(uint32_t at, const uint4 (&x)[4], const Lane& me,
                                          float (&part)[4]) {
#pragma unroll
  for (int r = 0; r < 4; ++r) {
    const uint4 word = load_shared16(at + r * kRecordBytes + me.lane * 16);
#pragma unroll
    for (int s = 0; s < 2; ++s) {
      const uint2 first = bf16_of_e4m3(s == 0 ? word.x : word.z),
                  second = bf16_of_e4m3(s == 0 ? word.y : word.w);
      const uint32_t a[4] = {first.x, first.y, second.x, second.y};
      const uint32_t b0 = s == 0 ? x[r].x : x[r].z, b1 = s == 0 ? x[r].y : x[r].w;
      if (r == 0 && s == 0)
        multiply(part, a, b0, b1);
      else
        multiply_add(part, a, b0, b1);
    }
  }
}
__device__ inline float fp8_scale(uint32_t at) {
  return __uint_as_float(load_shared4(at + 4 * kRecordBytes));
}

template <bool kSliced, int kRows, bool kShared>
__device__ inline void multiply_fp8(const BlockFormat& w, uint32_t at, int blocks, int block,
                                    int step, const Lane& me, const Inputs<kRows, kShared>& x,
                                    Sums<kRows>& sums) {
  constexpr int kOperands = kTiles<kRows>;
#pragma unroll 1
  for (; blocks > 0; --blocks, block += step, at += step * w.block_bytes) {
    uint4 word[4], b[4][kOperands];
#pragma unroll
    for (int r = 0; r < 4; ++r) {
      word[r] = load_shared16(at + r * kRecordBytes + me.lane * 16);
      if constexpr (kOperands == 1) b[r][0] = x.load(0, 128 * block + 32 * r + 8 * me.t);
    }
    const float scale = __uint_as_float(load_shared4(at + 4 * kRecordBytes));
    Sums<kRows> part;
#pragma unroll
    for (int r = 0; r < 4; ++r) {
      if constexpr (kOperands > 1)
#pragma unroll
        for (int j = 0; j < kOperands; ++j) b[r][j] = x.load(j, 128 * block + 32 * r + 8 * me.t);
#pragma unroll
      for (int s = 0; s < 2; ++s) {
        const uint32_t low = s == 0 ? word[r].x : word[r].z, high = s == 0 ? word[r].y : word[r].w;
        const uint2 first = bf16_of_e4m3(low), second = bf16_of_e4m3(high);
        const uint32_t a[4] = {first.x, first.y, second.x, second.y};
#pragma unroll
        for (int j = 0; j < kOperands; ++j) {
          const uint32_t b0 = s == 0 ? b[r][j].x : b[r][j].z, b1 = s == 0 ? b[r][j].y : b[r][j].w;
          if (r == 0 && s == 0)
            multiply(part[j], a, b0, b1);
          else
            multiply_add(part[j], a, b0, b1);
        }
      }
    }
    add_scaled<kSliced, kRows>(part, scale, sums);
  }
}

template <bool kSliced, int kRows, bool kShared>
__device__ inline void multiply_bf16(uint32_t at, int blocks, int block, int step, const Lane& me,
                                     const Inputs<kRows, kShared>& x, Sums<kRows>& sums) {
  constexpr int kOperands = kTiles<kRows>;
#pragma unroll 1
  for (; blocks > 0; --blocks, block += step, at += step * 4 * static_cast<int>(kRecordBytes)) {
    const int k = 64 * block + 16 * me.t;
    uint4 word[4];
#pragma unroll
    for (int r = 0; r < 4; ++r) word[r] = load_shared16(at + r * kRecordBytes + me.lane * 16);
    Sums<kRows> own = {};
    Sums<kRows>& to = kSliced ? own : sums;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      uint4 b[kOperands];
#pragma unroll
      for (int j = 0; j < kOperands; ++j) b[j] = x.load(j, k + 8 * half);
#pragma unroll
      for (int s = 0; s < 2; ++s) {
        const uint4& r = word[2 * half + s];
        const uint32_t a[4] = {r.x, r.y, r.z, r.w};
#pragma unroll
        for (int j = 0; j < kOperands; ++j)
          multiply_add(to[j], a, s == 0 ? b[j].x : b[j].z, s == 0 ? b[j].y : b[j].w);
      }
    }
    if constexpr (kSliced) add_scaled<false, kRows>(own, 1.0f, sums);
  }
}

// Formats a kernel is made for: all, those of is_common(…), or bf16 and fp8.
enum class Formats : uint8_t { kAny, kCommon, kPlain };

template <bool kSliced = false, Formats kFormats = Formats::kAny, int kRows, bool kShared>
__device__ inline void multiply_blocks(const BlockFormat& w, uint32_t at, int blocks, int block,
                                       int step, const Lane& me, const Inputs<kRows, kShared>& x,
                                       Sums<kRows>& sums) {
  if (w.format == WeightFormat::kFp8Block128)
    return multiply_fp8<kSliced>(w, at, blocks, block, step, me, x, sums);
  if constexpr (kFormats != Formats::kPlain) {
    if (w.format == WeightFormat::kInt4Group128) {
      if (kFormats == Formats::kCommon || (w.scale_dtype != DType::kF32 && !w.has_zeros))
        return multiply_int4<true, kSliced>(w, at, blocks, block, step, me, x, sums);
      if constexpr (kFormats == Formats::kAny)
        return multiply_int4<false, kSliced>(w, at, blocks, block, step, me, x, sums);
    }
  }
  if constexpr (kFormats == Formats::kAny)
    if (w.format == WeightFormat::kInt8Row)
      return multiply_int8<kSliced>(w, at, blocks, block, step, me, x, sums);
  multiply_bf16<kSliced>(at, blocks, block, step, me, x, sums);
}

}  // namespace pewter::cuda
