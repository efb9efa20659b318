// Matrices times one row that stays in registers, of which each of eight warps that share a tile
// has the same few blocks of k. held.cuh does the same for up to four rows.
//
// int4, by a coded row: a lane's 16 bytes of a record are an operand as they are: its lines g hold
// inputs 0 … 3 of each eight, its lines g + 8 inputs 4 … 7, and bytes output g's codes in their low
// halves, those of output g + 8 in the high ones. So a column is of inputs 0 … 3 or of 4 … 7, high
// bytes or low ones: the eight have two groups of the row. A warp's blocks go in pairs, and each
// meets zeros in the columns of the other, so that both add to one sum, in different lanes. The
// low halves alone make output g's product, whole bytes that and sixteen times output g + 8's: for
// a record two matrix instructions and four that prepare them. The bits are multiply_held's.
#pragma once

#include "backend/cuda/linear/fragments.cuh"

namespace pewter::cuda {

// Lanes have t = 2 · half + odd: output g or g + 8 of the first or the second block of a pair; a
// block without another is a second one, so that the second half always ends with all blocks.
template <int kBlocks>
struct HeldRow {
  static constexpr int kPairs = (kBlocks + 1) / 2;
  static constexpr int kStep = 8;  // from one block of a warp to the next
  static constexpr int kBlockBytes =
      static_cast<int>(block_shape(WeightFormat::kInt4Group128, DType::kBF16, false).bytes());
  static constexpr int half_of(int block) { return block == kBlocks - 1 ? 1 : block % 2; }
  // The block of a pair in a lane's half, less that half, if it has one.
  static constexpr int first_of(int pair) { return min(2 * pair, kBlocks - 2); }

  uint32_t (&word)[16];  // [block][record][half of its inputs]; of others free to use
  float scale[kPairs];   // of the lane's blocks
  int32_t zero[kPairs];  // their sums times the code that stands for zero

  // What load() wants: of a row coded for k inputs, at shared address `row`.
  static __device__ uint32_t words_of(uint32_t row, const Lane& me) {
    return row + (me.warp + me.g / 4 * kStep) * 256 + 16 * me.t + me.g % 2 * 8 + me.g / 2 % 2 * 4;
  }
  static __device__ uint32_t scales_of(uint32_t row, int k, const Lane& me) {
    return row + 2 * k + 8 * (me.warp + me.t / 2 * kStep);
  }
  __device__ void load(uint32_t words, uint32_t scales, const Lane& me) {
    uint32_t own[kPairs][4];
    uint2 by[kPairs];
#pragma unroll
    for (int p = 0; p < kPairs; ++p) {
#pragma unroll
      for (int i = 0; i < 4; ++i)
        own[p][i] = load_shared4(words + first_of(p) * kStep * 256 + i / 2 * 128 + i % 2 * 64);
      by[p] = load_shared8(scales + first_of(p) * kStep * 8);
    }
#pragma unroll
    for (int block = 0; block < kBlocks; ++block)
#pragma unroll
      for (int i = 0; i < 4; ++i)
        word[4 * block + i] = me.g / 4 == half_of(block) ? own[block / 2][i] : 0;
#pragma unroll
    for (int p = 0; p < kPairs; ++p) {
      scale[p] = __uint_as_float(by[p].x);
      zero[p] = static_cast<int32_t>(by[p].y) * (me.t % 2 == 0 ? 8 : 8 * 16);
    }
  }

  // sum[i]: of tile i, of kTiles beside each other; the warp's first block of the first is at
  // shared address `at`. Scales are of 16 bits; there are no zero points.
  template <int kTiles>
  __device__ void multiply_by(bool is_half, uint32_t at, const Lane& me,
                              float (&sum)[kTiles]) const {
    const bool odd = me.t % 2 == 1;
    int32_t low[kTiles][kPairs][4], both[kTiles][kPairs][4];
#pragma unroll
    for (int r = 0; r < 2; ++r)
#pragma unroll
      for (int block = 0; block < kBlocks; ++block)
#pragma unroll
        for (int tile = 0; tile < kTiles; ++tile) {
          const uint4 codes = load_shared16(at + (tile * kBlocks + block) * kStep * kBlockBytes +
                                            r * kRecordBytes + me.lane * 16);
          const uint32_t whole[4] = {codes.x, codes.y, codes.z, codes.w};
          const uint32_t halves[4] = {codes.x & 0x0F0F0F0Fu, codes.y & 0x0F0F0F0Fu,
                                      codes.z & 0x0F0F0F0Fu, codes.w & 0x0F0F0F0Fu};
          const uint32_t b0 = word[4 * block + 2 * r], b1 = word[4 * block + 2 * r + 1];
          auto &low_sum = low[tile][block / 2], &both_sum = both[tile][block / 2];
          if (r == 0 && block % 2 == 0) {
            multiply_unsigned(low_sum, halves, b0, b1);
            multiply_unsigned(both_sum, whole, b0, b1);
          } else {
            multiply_add_unsigned(low_sum, halves, b0, b1);
            multiply_add_unsigned(both_sum, whole, b0, b1);
          }
        }

    float factor[kTiles][kPairs], product[kTiles][kPairs];
    const uint32_t scales =
        at + me.t / 2 * kStep * kBlockBytes + 2 * kRecordBytes + 4 * me.g + (odd ? 2 : 0);
#pragma unroll
    for (int tile = 0; tile < kTiles; ++tile)
#pragma unroll
      for (int p = 0; p < kPairs; ++p) {
        const uint32_t bits =
            load_shared2(scales + (tile * kBlocks + first_of(p)) * kStep * kBlockBytes);
        const float own = is_half ? __half2float(__ushort_as_half(static_cast<uint16_t>(bits)))
                                  : __uint_as_float(bits << 16);
        factor[tile][p] = own * (odd ? 0.0625f : 1.0f) * scale[p];
        // What the lane has of its output, and what of the other one, from where it has the rest.
        const auto &l = low[tile][p], &b = both[tile][p];
        const int32_t first = odd ? (l[2] << 8) + l[3] : (l[0] << 8) + l[1];
        const int32_t second = (odd ? (b[2] << 8) + b[3] : (b[0] << 8) + b[1]) - first;
        const int32_t rest = __shfl_xor_sync(0xFFFFFFFFu, odd ? first : second, 1);
        product[tile][p] = static_cast<float>((odd ? second : first) + rest - zero[p]);
      }
#pragma unroll
    for (int tile = 0; tile < kTiles; ++tile) {
      float own = fmaf(factor[tile][0], product[tile][0], 0.0f);
#pragma unroll
      for (int block = 1; block < kBlocks; ++block) {
        if (half_of(block) != half_of(block - 1)) own = __shfl_xor_sync(0xFFFFFFFFu, own, 2);
        own = fmaf(factor[tile][block / 2], product[tile][block / 2], own);
      }
      sum[tile] = own;
    }
  }
};

}  // namespace pewter::cuda
