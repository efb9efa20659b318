// How weights lie on the GPU: as the operand fragments of a 16 × 8 × 16 matrix instruction, so that
// a warp reads its weights as consecutive 512-byte records, 16 bytes a lane, and multiplies them
// without moving anything between lanes.
//
// A matrix [n, k] is cut into *tiles* of 16 outputs; a tile is a run of records over all of k. With
// lane = 4·g + t (g = 0…7, t = 0…3), a lane's 16 bytes hold outputs g and g + 8 of the tile:
//
//   format  inputs of   a lane's inputs (i = 0…3)       its 16 bytes
//           a record
//   bf16    16          64b + 16t + 4s + i               step s of block b = record 4b + s:
//                                                        (g; i=0,1) (g+8; 0,1) (g; 2,3) (g+8; 2,3)
//   fp8     32          32b + 8t + 4s + i, s = 0, 1      bytes 8s …: the same four pairs
//   int8    32          as fp8
//   int4    64          64b + 16t + 4s + i, s = 0…3      word s: pair p's first code in nibble p,
//   its
//                                                        second in nibble p + 4
//
// n is padded to 16 and k to 64 (int4: 128) with zeros (int4: with the zero code of scale 0).
//
//   scales  int4: [tiles][k / 128][16], outputs i and i + 8 side by side, as stored; fp8:
//   [⌈n/128⌉][⌈k/128⌉];
//           int8: [16 · tiles] f32
//   zeros   int4 with zero points: [tiles][k / 128][16] u8, in the order of the scales
#pragma once

#include <cstdint>

#include "tensor/weight_matrix.h"

namespace pewter::cuda {

inline constexpr int kTiledLayout = 1;  // WeightMatrix::layout
inline constexpr int64_t kTileOutputs = 16, kRecordBytes = 512;

constexpr int64_t round_up(int64_t x, int64_t to) { return (x + to - 1) / to * to; }
constexpr int64_t tiles_of(int64_t n) { return round_up(n, kTileOutputs) / kTileOutputs; }

// Inputs one record covers, and what k is padded to.
constexpr int64_t record_inputs(WeightFormat format) {
  switch (format) {
    case WeightFormat::kInt4Group128:
      return 64;
    case WeightFormat::kFp8Block128:
      return 32;
    default:
      return 16;
  }
}
constexpr int64_t padded_k(WeightFormat format, int64_t k) {
  return round_up(k, format == WeightFormat::kInt4Group128 ? 128 : 64);
}
constexpr int64_t tile_records(WeightFormat format, int64_t k) {
  return padded_k(format, k) / record_inputs(format);
}

}  // namespace pewter::cuda
