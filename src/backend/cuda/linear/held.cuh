// int4 matrices times up to four rows that stay in registers. Eight warps share a tile by its
// blocks of k, so that a warp meets the same inputs in every tile; where a tile has kBlocks · 8
// blocks, it keeps them: half of what it would otherwise read from shared memory for each tile, and
// a third of its instructions. The bits are multiply_int4's.
#pragma once

#include "backend/cuda/linear/fragments.cuh"

namespace pewter::cuda {

constexpr int kHeldRows = 4, kMostHeld = 3;
// Blocks of each of eight warps that can be held; 0: none.
constexpr int held_blocks(int blocks) {
  return blocks % 8 == 0 && blocks / 8 <= kMostHeld && blocks / 8 >= 2 ? blocks / 8 : 0;
}

template <int kBlocks>
struct HeldRows {
  Codes<kHeldRows> codes[kBlocks][4];
  GroupScale scale[kBlocks];

  // x: coded rows.
  __device__ void load(const Inputs<kHeldRows, true>& x, const Lane& me) {
#pragma unroll
    for (int i = 0; i < kBlocks; ++i) {
      const int block = me.warp + 8 * i;
#pragma unroll
      for (int s = 0; s < 4; ++s) codes[i][s] = x.load_codes(0, 128 * block + 32 * s + 8 * me.t);
      scale[i] = x.scale(0, 0, block);
    }
  }
};
template <>
struct HeldRows<0> {
  __device__ void load(const Inputs<kHeldRows, true>&, const Lane&) {}
};

// sums += a tile's blocks of this warp, the first at shared address `at`, times the rows. Scales
// are of 16 bits; there are no zero points.
template <int kBlocks>
__device__ inline void multiply_held(const BlockFormat& w, uint32_t at, const Lane& me,
                                     const HeldRows<kBlocks>& x, Sums<kHeldRows>& sums) {
  uint4 record[kBlocks][2];
  uint32_t both[kBlocks];
#pragma unroll
  for (int i = 0; i < kBlocks; ++i) {
    const uint32_t from = at + i * 8 * w.block_bytes;
    record[i][0] = load_shared16(from + me.lane * 16);
    record[i][1] = load_shared16(from + kRecordBytes + me.lane * 16);
    both[i] = load_shared4(from + 2 * kRecordBytes + 4 * me.g);
  }
#pragma unroll
  for (int i = 0; i < kBlocks; ++i) {
    int32_t part[2][4];  // sums of halves of the block: two chains of instructions
#pragma unroll
    for (int s = 0; s < 4; ++s) {
      const uint4& word = record[i][s / 2];
      const uint32_t first = s % 2 == 0 ? word.x : word.z, second = s % 2 == 0 ? word.y : word.w;
      // Of outputs g + 8 sixteen times the code.
      const uint32_t a[4] = {first & 0x0F0F0F0Fu, first & 0xF0F0F0F0u, second & 0x0F0F0F0Fu,
                             second & 0xF0F0F0F0u};
      if (s < 2)
        multiply_unsigned(part[s], a, x.codes[i][s].word[0], x.codes[i][s].word[1]);
      else
        multiply_add_unsigned(part[s - 2], a, x.codes[i][s].word[0], x.codes[i][s].word[1]);
    }
    float2 scale = __half22float2(*reinterpret_cast<const __half2*>(&both[i]));
    if (w.scale_dtype != DType::kF16)
      scale = {__uint_as_float(both[i] << 16), __uint_as_float(both[i] & 0xFFFF0000u)};
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int32_t sum = ((part[0][2 * half] + part[1][2 * half]) << 8) + part[0][2 * half + 1] +
                          part[1][2 * half + 1];
      const int32_t zero = half == 0 ? 8 : 8 * 16;
      const float factor = (half == 0 ? scale.x : scale.y * 0.0625f) * x.scale[i].scale;
      const auto product = static_cast<float>(sum - zero * x.scale[i].sum);
      sums[0][2 * half] = fmaf(factor, product, sums[0][2 * half]);
    }
  }
}

}  // namespace pewter::cuda
