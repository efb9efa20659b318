// How weights lie on the GPU: as the operand fragments of matrix instructions of 16 outputs, so
// that a warp reads its weights as one stream of 16-byte pieces a lane and multiplies them without
// moving anything between lanes.
//
// A matrix [n, k] is cut into *tiles* of 16 outputs; a tile is a run of blocks over all of k; a
// block is a few *records* of 512 bytes and a tail with what scales them. With lane = 4·g + t (g =
// 0…7, t = 0…3), a lane's 16 bytes of a record hold outputs g and g + 8 of the tile:
//
//   format  inputs of   a lane's inputs (i = 0…3)       its 16 bytes                       records
//           a record                                                                        a block
//   bf16    16          64b + 16t + 4s + i              step s of block b = record 4b + s:  4
//                                                       (g; i=0,1) (g+8; 0,1) (g; 2,3) (g+8; 2,3)
//   fp8     32          32r + 8t + 4s + i, s = 0, 1     bytes 8s …: the same four pairs     4
//   int8    32          32r + 8t + 4s + i, s = 0, 1     bytes 8s …: (g; i=0…3) (g+8; 0…3)   4
//   int4    64          64r + 32s + 8t + 4h + i,        word 2s + h, byte i: code of g in   2
//                       s = 0, 1; h = 0, 1              the low nibble, of g+8 in the high
//
// n is padded to 16 with zeros, k to 64 (fp8, int8, int4: 128).
//
//   tail    int4: 16 scales in the stored type, outputs i and i + 8 side by side; then, with zero
//           points, 16 of them as u8 in the same order. fp8: the block's scale as f32, four times.
//           int8: none. WeightMatrix::scales is a tensor of its own, [count, n padded to 16] f32,
//           behind all values; padding is 0.
#pragma once

#include <cstdint>

#include "tensor/weight_matrix.h"

namespace pewter::cuda {

inline constexpr int kTiledLayout = 1;  // WeightMatrix::layout
inline constexpr int64_t kTileOutputs = 16, kRecordBytes = 512;

// Whether a format's matrices meet rows coded as integers (linear/coded_rows.cuh) and not bf16
// ones.
constexpr bool is_coded(WeightFormat format) {
  return format == WeightFormat::kInt4Group128 || format == WeightFormat::kInt8Row;
}

constexpr int64_t round_up(int64_t x, int64_t to) { return (x + to - 1) / to * to; }
constexpr int64_t tiles_of(int64_t n) { return round_up(n, kTileOutputs) / kTileOutputs; }

constexpr int block_inputs(WeightFormat format) {
  return is_coded(format) || format == WeightFormat::kFp8Block128 ? 128 : 64;
}

struct BlockShape {
  int64_t inputs = 0;  // of a block
  int64_t records = 4;
  int64_t tail_bytes = 0;
  constexpr int64_t bytes() const { return records * kRecordBytes + tail_bytes; }
};
constexpr BlockShape block_shape(WeightFormat format, DType scale_dtype, bool has_zeros) {
  const int64_t inputs = block_inputs(format);
  switch (format) {
    case WeightFormat::kInt4Group128:
      return {inputs, 2, 16 * dtype_bytes(scale_dtype) + (has_zeros ? 16 : 0)};
    case WeightFormat::kFp8Block128:
      return {inputs, 4, 16};
    case WeightFormat::kInt8Row:
      return {inputs, 4, 0};
    default:
      return {.inputs = inputs};
  }
}

}  // namespace pewter::cuda
