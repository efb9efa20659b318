// Down matrices of the experts, and the sum over a row's experts.
//
// Split of work: a block of threads takes tiles of 16 outputs, and for each all the experts the
// step meets, the shared one first, so that a row's results are added where they are made. As many
// experts' tiles as fit pass through a stage together; warps share each by slices of k as in
// linear/stream.cu, and slices are added in order.
// Bytes: the matrices of the experts met, once per kRows rows; x from L2 once per block of
// threads. Precision: exact weights; bf16 rows or coded ones; f32 sums. Limits: memory.

#include <algorithm>

#include "backend/cuda/linear/coded_rows.h"
#include "backend/cuda/linear/parts.cuh"
#include "backend/cuda/moe/experts_down_few.h"
#include "backend/cuda/moe/experts_down_many.h"

namespace pewter::cuda {
namespace {

// The way through tiles, blocks and pieces.
struct Walk {
  int tile, number = 0, piece = 0;

  struct Limits {
    int shared_blocks, blocks = 0, tiles, tile_step;
    int shared_piece, other_piece;         // blocks of k
    int shared_together, others_together;  // tiles in a stage, when one piece is a tile
  };
  __device__ bool is_done(const Limits& l) const { return tile >= l.tiles; }
  __device__ bool is_shared(const Limits& l) const { return number < l.shared_blocks; }
  __device__ int together(const Limits& l) const {
    return is_shared(l) ? min(l.shared_together, l.shared_blocks - number)
                        : min(l.others_together, l.blocks - number);
  }
  // `k_blocks`: of the tile at hand.
  __device__ void next(const Limits& l, int k_blocks) {
    piece += is_shared(l) ? l.shared_piece : l.other_piece;
    if (piece < k_blocks) return;
    piece = 0;
    number += together(l);
    if (number < l.blocks) return;
    number = 0;
    tile += l.tile_step;
  }
};
// Teams of eight warps, which share the tiles of a stage; and sums are kept of so many tiles.
template <int kRows>
constexpr int kTeams = kRows == 4 ? 2 : 1;
template <int kRows>
constexpr int kThreads = kTeams<kRows> * kStreamThreads;
template <int kRows>
constexpr int kBuffers = kRows == 4 ? 2 : 1;
constexpr int kMostDownStages = 3;

// Tables that few rows have in shared memory, and their results.
struct Tables {
  const RowBlock* blocks;
  const int32_t* pairs;
  const float *weight, *shared_weight;
};
constexpr int64_t table_bytes(int64_t rows, int64_t top_k, int64_t blocks) {
  return round_up(blocks * static_cast<int64_t>(sizeof(RowBlock)) + rows * (2 * top_k + 1) * 4, 16);
}

template <int kRows, bool kShared>
__global__ void __launch_bounds__(kThreads<kRows>, register_blocks(2))
    down_kernel(const __grid_constant__ ExpertsDown a, int stage_bytes, int stage_count, int width,
                bool few) {
  extern __shared__ __align__(128) unsigned char shared_memory[];
  __shared__ uint64_t barriers[kMostDownStages];
  using Weights = Stages<kThreads<kRows>>;
  start_next();
  const Lane me;
  const int team = me.warp / kStreamWarps, slice_warp = me.warp % kStreamWarps;
  constexpr int kAll = kThreads<kRows>;
  constexpr int kBlockSums = kStreamWarps * kSliceSums<kRows>;
  constexpr int kLoadSums = kTeams<kRows> * kBlockSums;
  const int pairs = a.groups.rows * a.groups.top_k;
  Weights stages(shared_memory, barriers, stage_bytes, stage_count);
  auto* const sums = reinterpret_cast<float*>(shared_memory + stage_count * stage_bytes);
  float* const results = sums + kBuffers<kRows> * kLoadSums;  // [pairs + rows][16], few rows
  unsigned char* const tables =
      reinterpret_cast<unsigned char*>(results + (few ? 16 * (pairs + a.groups.rows) : 0));
  auto* const rows = reinterpret_cast<uint8_t*>(
      tables + (few ? table_bytes(a.groups.rows, a.groups.top_k, a.groups.max_blocks) : 0));
  const auto together = [&](const TileStack& w) {
    const int tile_bytes = w.blocks * w.block_bytes;
    return max(min(stage_bytes / tile_bytes, kTeams<kRows>), 1);
  };
  Walk::Limits limits{.shared_blocks = a.groups.shared_blocks(),
                      .blocks = a.groups.shared_blocks() + 1,  // more when they are known
                      .tiles = a.w.tiles,
                      .tile_step = static_cast<int>(gridDim.x),
                      .shared_piece = piece_blocks(a.shared, stage_bytes),
                      .other_piece = piece_blocks(a.w, stage_bytes),
                      .shared_together = together(a.shared),
                      .others_together = together(a.w)};
  __syncthreads();

  Tables table{a.groups.blocks, a.groups.pairs, a.weight, a.shared_weight};
  Walk ahead{static_cast<int>(blockIdx.x)};
  const auto refill = [&] {
    if (ahead.is_done(limits)) return;
    const bool shared = ahead.is_shared(limits);
    const TileStack& w = shared ? a.shared : a.w;
    const int bytes =
        min(shared ? limits.shared_piece : limits.other_piece, w.blocks - ahead.piece) *
        w.block_bytes;
    const int count = ahead.together(limits);
    stages.open(count * bytes);
    for (int i = 0; i < count; ++i) {
      const int matrix = shared ? 0 : table.blocks[ahead.number + i].matrix;
      stages.copy(i * bytes,
                  w.values + matrix * w.matrix_bytes +
                      (static_cast<int64_t>(ahead.tile) * w.blocks + ahead.piece) * w.block_bytes,
                  bytes);
    }
    stages.close();
    ahead.next(limits, w.blocks);
  };
  // The shared expert's weights do not wait for the routing.
  int requested = 0;
  if (Weights::fills(me.warp))
#pragma unroll 1
    for (; requested < stage_count && ahead.is_shared(limits); ++requested) refill();
  wait_for_inputs();
  // The last warps bring the tables, whole so that nothing waits for their length, while the others
  // bring the rows: one wait for all.
  constexpr int kTableWarps = 2, kRowWarps = kAll / kWarp - kTableWarps;
  auto* const blocks = reinterpret_cast<RowBlock*>(tables);
  auto* const pair_list = reinterpret_cast<int32_t*>(blocks + a.groups.max_blocks);
  auto* const weight = reinterpret_cast<float*>(pair_list + pairs);
  float* const shared_weight = weight + pairs;
  __shared__ int block_count;
  const bool coded = is_coded(a.w.format), shared_coded = is_coded(a.shared.format);
  if (me.warp >= kRowWarps) {
    const int first = static_cast<int>(threadIdx.x) - kRowWarps * kWarp;
    if (first == 0) block_count = *a.groups.block_count;
    for (int i = first; few && i < max(a.groups.max_blocks, pairs); i += kTableWarps * kWarp) {
      if (i < a.groups.max_blocks) blocks[i] = a.groups.blocks[i];
      if (i < pairs) pair_list[i] = a.groups.pairs[i];
      if (i < pairs) weight[i] = a.weight[i];
      if (i < a.groups.rows) shared_weight[i] = a.shared_weight[i];
    }
  } else if (kShared) {
    stage_rows(
        pairs, a.k, width, coded, [&](int r) { return a.x + r * a.x_stride; }, rows, me.warp,
        kRowWarps);
    // Shared rows from the other end, where warps have had a piece less.
    stage_rows(
        a.groups.rows, a.shared_k, width, shared_coded,
        [&](int r) { return a.shared_x + r * a.shared_x_stride; }, rows + pairs * row_pitch(width),
        kRowWarps - 1 - me.warp, kRowWarps);
  }
  __syncthreads();
  limits.blocks = block_count;
  if (few) table = {blocks, pair_list, weight, shared_weight};
  if (Weights::fills(me.warp))
#pragma unroll 1
    for (; requested < stage_count; ++requested) refill();

  // Where the result of a block's row for output o of a tile is.
  const auto result_of = [&](bool shared, int row, int tile, int output) -> float* {
    const int64_t at = shared ? pairs + row : row;
    return few ? results + at * 16 + output : a.outputs + at * a.hidden + tile * 16 + output;
  };
  int buffer = 0;
#pragma unroll 1
  for (int tile = static_cast<int>(blockIdx.x); tile < a.w.tiles;
       tile += static_cast<int>(gridDim.x)) {
    float before = 0;
    const int my_row = static_cast<int>(threadIdx.x) / 16, my_n = tile * 16 + threadIdx.x % 16;
    if (a.residual != nullptr && my_row < a.groups.rows && my_n < a.w.n)
      before = a.residual[static_cast<int64_t>(my_row) * a.hidden + my_n];
#pragma unroll 1
    for (Walk here{tile}; here.tile == tile;) {
      const bool shared = here.is_shared(limits);
      const TileStack& w = shared ? a.shared : a.w;
      const BlockFormat format = format_of(w);
      const int piece = shared ? limits.shared_piece : limits.other_piece;
      const int count = here.together(limits), first = here.number;
      float* const to = sums + buffer * kLoadSums;
      Sums<kRows> slice = {};
#pragma unroll 1
      for (; here.number == first && here.tile == tile; here.next(limits, w.blocks)) {
        const int blocks = min(piece, w.blocks - here.piece);
        const uint32_t stage = stages.wait();
        if (const int i = team; i < count) {  // a team has one tile of a stage at most
          const uint32_t at = stage + i * blocks * w.block_bytes;
          const RowBlock block = table.blocks[first + i];
          Inputs<kRows, kShared> x;
          const auto row_of = [&](int r) {
            return shared ? block.begin + r : table.pairs[block.begin + r];
          };
          if constexpr (kShared) {
            point_at(x, me, block.count, width, shared ? shared_coded : coded, [&](int r) {
              return rows + ((shared ? pairs : 0) + row_of(r)) * row_pitch(width);
            });
          } else {
            x.k_end = shared ? readable_inputs(a.shared_x, a.shared_x_stride, a.shared_k)
                             : readable_inputs(a.x, a.x_stride, a.k);
            point_at(x, me, block.count, width, shared ? shared_coded : coded,
                     [&](int r) -> const uint8_t* {
                       const int row = row_of(r);
                       if (shared ? shared_coded : coded)
                         return a.codes +
                                static_cast<int64_t>((shared ? pairs : 0) + row) * row_pitch(width);
                       return reinterpret_cast<const uint8_t*>(
                           shared ? a.shared_x + row * a.shared_x_stride : a.x + row * a.x_stride);
                     });
          }
          if (here.piece == 0)
#pragma unroll
            for (int j = 0; j < kTiles<kRows>; ++j)
#pragma unroll
              for (int c = 0; c < 4; ++c) slice[j][c] = 0;
          multiply_blocks(format, at + slice_warp * w.block_bytes, blocks_of(slice_warp, blocks),
                          here.piece + slice_warp, kStreamWarps, me, x, slice);
          if (here.piece + blocks == w.blocks)
            keep_sums<kRows>(slice, me, to + i * kBlockSums + slice_warp * kSliceSums<kRows>);
        }
        stages.release();
        __syncthreads();
        if (Weights::fills(me.warp)) refill();
      }
      for (int i = static_cast<int>(threadIdx.x); i < count * kSliceSums<kRows>; i += kAll) {
        const int output = i % 16, r = i / 16 % kRows, number = i / kSliceSums<kRows>;
        const RowBlock block = table.blocks[first + number];
        if (r >= block.count || tile * 16 + output >= w.n) continue;
        const int row = shared ? block.begin + r : table.pairs[block.begin + r];
        *result_of(shared, row, tile, output) =
            total_of<kRows>(to + number * kBlockSums, output, r);
      }
      if (kBuffers<kRows> == 1)
        __syncthreads();
      else
        buffer ^= 1;
    }
    __syncthreads();
    for (int i = static_cast<int>(threadIdx.x); i < 16 * a.groups.rows; i += kAll) {
      const int row = i / 16, output = i % 16, n = tile * 16 + output;
      if (n >= a.w.n) continue;
      float sum = 0;
      for (int slot = 0; slot < a.groups.top_k; ++slot) {
        const int pair = row * a.groups.top_k + slot;
        sum = fmaf(table.weight[pair], *result_of(false, pair, tile, output), sum);
      }
      sum = fmaf(table.shared_weight[row], *result_of(true, row, tile, output), sum);
      const int64_t at = static_cast<int64_t>(row) * a.hidden + n;
      a.partial[at] = sum;
      if (a.residual != nullptr) a.residual[at] = (i < kAll ? before : a.residual[at]) + sum;
    }
    __syncthreads();
  }
}

template <int kRows>
void run(cudaStream_t stream, const Gpu& gpu, const ExpertsDown& args) {
  const int width = padded_inputs(std::max(args.k, args.shared_k));
  const Grouping& groups = args.groups;
  const int64_t pairs = static_cast<int64_t>(groups.rows) * groups.top_k;
  const int64_t rows = (pairs + groups.rows) * row_pitch(width);
  const int64_t tables =
      16 * (pairs + groups.rows) * 4 + table_bytes(groups.rows, groups.top_k, groups.max_blocks);
  int64_t bytes = kBuffers<kRows> * kTeams<kRows> * kStreamWarps * kSliceSums<kRows> * int64_t{4};
  const bool few = kLeastStages * kSmallStage + bytes + tables <= kMaxShared;
  if (few) bytes += tables;
  const bool shared = kLeastStages * kSmallStage + bytes + rows <= kMaxShared;
  if (shared) {
    bytes += rows;
  } else {
    if (is_coded(args.w.format))
      code_rows(stream, {.x = args.x,
                         .x_stride = args.x_stride,
                         .rows = static_cast<int>(pairs),
                         .k = args.k,
                         .width = width,
                         .codes = args.codes});
    if (is_coded(args.shared.format))
      code_rows(stream, {.x = args.shared_x,
                         .x_stride = args.shared_x_stride,
                         .rows = groups.rows,
                         .k = args.shared_k,
                         .width = width,
                         .codes = args.codes + pairs * row_pitch(width)});
  }
  constexpr int stage_bytes = kSmallStage;
  const int stage_count =
      bytes + kMostDownStages * stage_bytes <= kMaxShared ? kMostDownStages : kLeastStages;
  bytes += stage_count * stage_bytes;
  const int grid =
      std::min(args.w.tiles, gpu.multiprocessors * resident_blocks(gpu, bytes, kResidentBlocks));
  launch(stream, dim3(static_cast<unsigned>(grid)), dim3(kThreads<kRows>),
         static_cast<size_t>(bytes), shared ? down_kernel<kRows, true> : down_kernel<kRows, false>,
         args, stage_bytes, stage_count, width, few);
}

}  // namespace

void experts_down(cudaStream_t stream, const Gpu& gpu, const ExpertsDown& args) {
  if (args.groups.rows == 0) return;
  CHECK(args.w.row_scales == nullptr && args.shared.row_scales == nullptr, "experts in ",
        weight_format_name(args.w.format), " and ", weight_format_name(args.shared.format));
  if (down_few(stream, args) || down_many(stream, gpu, args)) return;
  if (args.groups.capacity() == 4)
    run<4>(stream, gpu, args);
  else
    run<32>(stream, gpu, args);
}

}  // namespace pewter::cuda
