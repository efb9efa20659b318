// What the weight-streaming kernels share: the block of threads, rows in shared memory, sums of
// slices.
#pragma once

#include <algorithm>

#include "backend/cuda/common/norm.cuh"
#include "backend/cuda/linear/fragments.cuh"
#include "backend/cuda/linear/ring.cuh"
#include "backend/cuda/linear/stages.cuh"

namespace pewter::cuda {

// Of the 99 KiB a block of threads may have on every GPU we serve, what kernels share out at a
// launch.
constexpr int64_t kMaxShared = 98 * 1024;
constexpr int64_t kOwnShared = 1024;  // the hardware adds to a block's shared memory

// Units of work of a number of blocks of threads: `each`, and one more for the first `more`.
struct Shares {
  int each, more;
  __host__ __device__ static Shares of(int units, int shares) {
    return {units / shares, units % shares};
  }
  __device__ int begin(int index) const { return each * index + min(index, more); }
};

// Inputs of a row in shared memory: whole blocks of every format.
constexpr int padded_inputs(int k) { return static_cast<int>(round_up(k, 128)); }

// Eight inputs of a row of k, zeros behind its end.
__device__ inline uint4 eight_inputs(const __nv_bfloat16* from, int at, int k) {
  if (at + 8 <= k && reinterpret_cast<uintptr_t>(from) % 16 == 0)
    return *reinterpret_cast<const uint4*>(from + at);
  uint32_t word[4];
  const auto* bits = reinterpret_cast<const uint16_t*>(from);
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const int j = at + 2 * i;
    word[i] = (j < k ? bits[j] : 0u) | (j + 1 < k ? bits[j + 1] : 0u) << 16;
  }
  return make_uint4(word[0], word[1], word[2], word[3]);
}

// Copies row source(r) of x for r < count, padded with zeros to `width` inputs, into shared memory,
// as it is or coded: the share of one of `warps` warps.
template <typename Source>
__device__ inline void stage_rows(int count, int k, int width, bool coded, const Source& source,
                                  uint8_t* rows, int warp, int warps) {
  constexpr int kPiece = kWarp * 8, kTogether = 4;  // loads on their way at once
  const int pieces = (width + kPiece - 1) / kPiece, lane = threadIdx.x % kWarp;
  // Piece `piece` of row `row` is the warp's next one: found without a division.
  int row = 0, piece = warp;
  const auto settle = [&] {
    while (piece >= pieces) piece -= pieces, ++row;
  };
  settle();
  while (row < count) {
    uint4 eight[kTogether];
    const int first_row = row, first_piece = piece;
#pragma unroll
    for (int j = 0; j < kTogether; ++j)
      if (row < count) {
        eight[j] = eight_inputs(source(row), piece * kPiece + lane * 8, k);
        piece += warps;
        settle();
      }
    const int end_row = row, end_piece = piece;
    row = first_row, piece = first_piece;
#pragma unroll 1
    while (row < end_row || piece < end_piece) {
      const int at = piece * kPiece + lane * 8;
      uint8_t* const to = rows + row * row_pitch(width);
      if (coded)
        code_inputs(eight[0], at, at < width, width, to);
      else if (at < width)
        *reinterpret_cast<uint4*>(to + 2 * at) = eight[0];
#pragma unroll
      for (int j = 0; j + 1 < kTogether; ++j) eight[j] = eight[j + 1];
      piece += warps;
      settle();
    }
  }
}

// Requests rows of `width` inputs, a multiple of 128, aligned to 16 bytes: as they are, or the same
// rows coded. By one thread.
__device__ inline void request_rows(const Transfer& transfer, uint8_t* rows, int count, int width,
                                    bool coded, const __nv_bfloat16* x, int64_t stride,
                                    const uint8_t* codes) {
  const int pitch = row_pitch(width);
  const auto* const from = coded ? codes : reinterpret_cast<const uint8_t*>(x);
  const int64_t step = coded ? pitch : 2 * stride;
  transfer.request(rows, count, coded ? pitch : 2 * width, pitch,
                   [&](int r) { return from + r * step; });
}

// Rows normalised on their way into shared memory, as bf16. Complete after a barrier.
template <int kThreads, typename Sync = BlockBarrier>
__device__ inline void stage_normed_rows(const float* x, int64_t stride, int count, int k,
                                         const NormShare<kThreads, 2>& weight, float epsilon,
                                         uint8_t* rows, float* scratch, const Sync& sync = {}) {
#pragma unroll 1
  for (int r = 0; r < count; ++r) {
    uint8_t* const to = rows + r * row_pitch(k);
    norm_row<kThreads, 2>(
        k, epsilon, weight,
        [&](int i) { return *reinterpret_cast<const float4*>(x + r * stride + i); },
        [&](int i, uint2 four) { *reinterpret_cast<uint2*>(to + 2 * i) = four; },
        scratch + r % 2 * kNormWarps, sync);
  }
}
// Codes rows of bf16 in shared memory in place. width: whole groups. By `kThreads` threads.
template <int kThreads>
__device__ inline void code_rows_in_place(int count, int width, uint8_t* rows) {
#pragma unroll 1
  for (int r = 0; r < count; ++r)
#pragma unroll 1
    for (int at = static_cast<int>(threadIdx.x) * 8; at < round_up(width, 256);
         at += kThreads * 8) {
      uint8_t* const row = rows + r * row_pitch(width);
      const uint4 eight = at < width ? *reinterpret_cast<const uint4*>(row + 2 * at) : uint4{};
      code_inputs(eight, at, at < width, width, row);
    }
}

// Points a lane at its columns: row_of(r) is the row of shared memory, or of memory, for row r of
// the block of `count` rows. A column without a row of its own repeats the first: nobody looks at
// its sums.
template <int kRows, bool kShared, typename RowOf>
__device__ inline void point_at(Inputs<kRows, kShared>& x, const Lane& me, int count, int width,
                                bool coded, const RowOf& row_of) {
  const auto place = [&](int r) {
    const uint8_t* const row = row_of(r < count ? r : 0);
    if constexpr (kShared)
      return static_cast<uint32_t>(__cvta_generic_to_shared(row));
    else
      return row;
  };
  const auto scales_of = [&](int r) {
    const auto at = place(r) + 2 * width;
    if constexpr (kShared)
      return at;
    else
      return reinterpret_cast<const GroupScale*>(at);
  };
  if constexpr (kSpread<kRows>) {
    x.row[0] = place(me.g / 2) + (coded && me.g % 2 == 1 ? 8 : 0);
    x.scales[0][0] = scales_of(me.t);
  } else {
#pragma unroll
    for (int j = 0; j < kTiles<kRows>; ++j) {
      x.row[j] = place(8 * j + me.g);
      x.scales[j][0] = scales_of(8 * j + 2 * me.t);
      x.scales[j][1] = scales_of(8 * j + 2 * me.t + 1);
    }
  }
}
// What Inputs of memory need to know of bf16 rows besides.
__device__ inline int readable_inputs(const void* first, int64_t stride, int k) {
  return reinterpret_cast<uintptr_t>(first) % 16 == 0 && stride % 8 == 0 ? k : -k;
}

__device__ inline BlockFormat format_of(const TileStack& w) {
  return {w.format, w.scale_dtype, w.has_zeros, w.block_bytes};
}

// Tiles pass through stages in pieces of a multiple of eight blocks. Warp w of a block of threads
// takes blocks w, w + 8, … of a tile: a slice. Slices' sums are added in order, so how large pieces
// are leaves no trace.
__host__ __device__ inline int piece_blocks(const TileStack& w, int stage_bytes) {
  return min(w.blocks, max(stage_bytes / (kStreamWarps * w.block_bytes), 1) * kStreamWarps);
}
// Blocks of a piece that are warp w's.
__device__ inline int blocks_of(int warp, int blocks) {
  return (blocks - warp + kStreamWarps - 1) / kStreamWarps;
}
constexpr int kLargeStage = 26496, kSmallStage = 17664;  // three or two times eight blocks of int4
// Blocks of a kernel on a multiprocessor, and what each takes of its shared memory: so much that no
// more than those fit. Were there room for the next kernel's blocks as well, they would start where
// room is, three here and none there, and stay so unequal; now they take the places of this one's
// as these end, and have their first weights on the way by the time that all have ended.
constexpr int kResidentBlocks = 2;
struct StagePlan {
  int bytes, count;  // of a stage; stages
};
// Stages for a kernel that needs `fixed` bytes besides.
inline StagePlan plan_stages(int64_t fixed) {
  const auto fit = [&](int bytes) { return static_cast<int>((kMaxShared - fixed) / bytes); };
  if (const int count = fit(kLargeStage); count >= kMostStages - 1)
    return {kLargeStage, std::min(count, kMostStages)};
  return {kSmallStage, std::clamp(fit(kSmallStage), kLeastStages, kMostStages)};
}

// The sums of one slice of one tile, [16 outputs][kRows], in shared memory.
template <int kRows>
constexpr int kSliceSums = 16 * kRows;
template <int kRows>
__device__ inline void keep_sums(const Sums<kRows>& sums, const Lane& me, float* to) {
  if constexpr (kSpread<kRows>) {
    to[me.g * kRows + me.t] = sums[0][0];
    to[(me.g + 8) * kRows + me.t] = sums[0][2];
  } else {
#pragma unroll
    for (int j = 0; j < kTiles<kRows>; ++j) {
      const int row = 8 * j + 2 * me.t;
      *reinterpret_cast<float2*>(to + me.g * kRows + row) = make_float2(sums[j][0], sums[j][1]);
      *reinterpret_cast<float2*>(to + (me.g + 8) * kRows + row) =
          make_float2(sums[j][2], sums[j][3]);
    }
  }
}
// One (output, row): its slices in order.
template <int kRows, int kSlices = kStreamWarps>
__device__ inline float total_of(const float* sums, int output, int row) {
  float total = 0;
#pragma unroll
  for (int slice = 0; slice < kSlices; ++slice)
    total += sums[slice * kSliceSums<kRows> + output * kRows + row];
  return total;
}

// Blocks of threads beside each other that a launch of `bytes` shared memory each may have, when
// `most` fit by their registers.
inline int resident_blocks(const Gpu& gpu, int64_t bytes, int most) {
  const int64_t fit = gpu.shared_bytes / (bytes + kOwnShared);
  return static_cast<int>(fit < 1 ? 1 : fit > most ? most : fit);
}

}  // namespace pewter::cuda
