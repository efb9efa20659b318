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

// The inputs of one block of k.
struct HeldBlock {
  Codes<kHeldRows> codes[4];
  GroupScale scale;

  // x: coded rows.
  __device__ void load(const Inputs<kHeldRows, true>& x, int block, const Lane& me) {
#pragma unroll
    for (int s = 0; s < 4; ++s) codes[s] = x.load_codes(0, 128 * block + 32 * s + 8 * me.t);
    scale = x.scale(0, 0, block);
  }
};

// A block of weights on its way into registers.
struct HeldWeights {
  uint4 record[2];
  uint32_t scales;  // of outputs g and g + 8

  __device__ void load(uint32_t at, const Lane& me) {
    record[0] = load_shared16(at + me.lane * 16);
    record[1] = load_shared16(at + kRecordBytes + me.lane * 16);
    scales = load_shared4(at + 2 * kRecordBytes + 4 * me.g);
  }
};

// sums += the block times the rows. Scales are of 16 bits; there are no zero points.
__device__ inline void multiply_held(const BlockFormat& w, const HeldWeights& weights,
                                     const HeldBlock& x, Sums<kHeldRows>& sums) {
  int32_t part[2][4];  // sums of halves of the block: two chains of instructions
#pragma unroll
  for (int s = 0; s < 4; ++s) {
    const uint4& word = weights.record[s / 2];
    const uint32_t first = s % 2 == 0 ? word.x : word.z, second = s % 2 == 0 ? word.y : word.w;
    // Of outputs g + 8 sixteen times the code.
    const uint32_t a[4] = {first & 0x0F0F0F0Fu, first & 0xF0F0F0F0u, second & 0x0F0F0F0Fu,
                           second & 0xF0F0F0F0u};
    if (s < 2)
      multiply_unsigned(part[s], a, x.codes[s].word[0], x.codes[s].word[1]);
    else
      multiply_add_unsigned(part[s - 2], a, x.codes[s].word[0], x.codes[s].word[1]);
  }
  float2 scale = __half22float2(*reinterpret_cast<const __half2*>(&weights.scales));
  if (w.scale_dtype != DType::kF16)
    scale = {__uint_as_float(weights.scales << 16), __uint_as_float(weights.scales & 0xFFFF0000u)};
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const int32_t sum = ((part[0][2 * half] + part[1][2 * half]) << 8) + part[0][2 * half + 1] +
                        part[1][2 * half + 1];
    const int32_t zero = half == 0 ? 8 : 8 * 16;
    const float factor = (half == 0 ? scale.x : scale.y * 0.0625f) * x.scale.scale;
    const auto product = static_cast<float>(sum - zero * x.scale.sum);
    sums[0][2 * half] = fmaf(factor, product, sums[0][2 * half]);
  }
}

// A warp's blocks of a tile, number me.warp and every eighth behind it.
template <int kBlocks>
struct HeldRows {
  HeldBlock block[kBlocks];

  __device__ void load(const Inputs<kHeldRows, true>& x, const Lane& me) {
#pragma unroll
    for (int i = 0; i < kBlocks; ++i) block[i].load(x, me.warp + 8 * i, me);
  }
};
template <>
struct HeldRows<0> {
  __device__ void load(const Inputs<kHeldRows, true>&, const Lane&) {}
};

__device__ inline void multiply_held(const BlockFormat&, uint32_t, const Lane&, const HeldRows<0>&,
                                     Sums<kHeldRows>&) {}
// sums += a tile's blocks of this warp, the first at shared address `at`, times the rows.
template <int kBlocks>
__device__ inline void multiply_held(const BlockFormat& w, uint32_t at, const Lane& me,
                                     const HeldRows<kBlocks>& x, Sums<kHeldRows>& sums) {
  HeldWeights weights[kBlocks];
#pragma unroll
  for (int i = 0; i < kBlocks; ++i) weights[i].load(at + i * 8 * w.block_bytes, me);
#pragma unroll
  for (int i = 0; i < kBlocks; ++i) multiply_held(w, weights[i], x.block[i], sums);
}

}  // namespace pewter::cuda
