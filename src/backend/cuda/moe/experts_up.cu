// Gate and up matrices of the experts, SiLU and product.
//
// Split of work: a unit is 16 gate outputs and the same 16 of the up matrix of one expert, times
// one block of up to 8·kTiles rows; warps share it by slices of k as in linear/stream.cu. The first
// blocks of threads do the shared expert's units, whose weights are requested before the routing is
// known; the others take contiguous ranges of the routed experts' units.
// Bytes: the matrices of the experts met, once per 8·kTiles rows; x from L2 once per block of
// threads. Precision: bf16 rows, exact weights, f32 sums. Limits: memory, and the wait for routing.

#include <algorithm>

#include "backend/cuda/linear/coded_rows.h"
#include "backend/cuda/linear/parts.cuh"
#include "backend/cuda/moe/experts.h"
#include "backend/cuda/moe/routing.cuh"

namespace pewter::cuda {
namespace {

// A block of threads has units of the shared expert or of the others, which may want rows of
// another kind. Unit u is tile u % tiles of block u / tiles.
struct Range {
  int begin, end;
};
__device__ inline Range range_of(int units, int index, int shares) {
  const auto at = [&](int i) { return static_cast<int>(static_cast<int64_t>(units) * i / shares); };
  return {at(index), at(index + 1)};
}

// Few rows are routed and grouped by every block of threads for itself: that costs less than a
// kernel of its own.
constexpr int kRouteChoices = 64;
struct Routing {
  int32_t expert[kRouteChoices], leads[kRouteChoices], pairs[kRouteChoices];
  float weight[kRouteChoices], shared_weight[kRouteChoices];
  RowBlock blocks[kRouteChoices + 1];
  int32_t expert_blocks;
};

__device__ inline void route_few(const ExpertsUp& a, bool tells, Routing& r) {
  const RouteRows& route = a.route;
  const int thread = static_cast<int>(threadIdx.x), warp = thread / kWarp;
  const int choices = route.rows * route.top_k;
  if (warp < route.rows)
    route_row<8>(route.experts, route.top_k, route.logits + warp * (route.experts + 1),
                 r.expert + warp * route.top_k, r.weight + warp * route.top_k,
                 r.shared_weight + warp);
  __syncthreads();
  group_few({r.expert, r.leads, r.pairs, r.blocks + 1, &r.expert_blocks}, choices);
  if (thread == 0) r.blocks[0] = {-1, 0, route.rows};
  __syncthreads();
  if (!tells) return;  // the others, and the kernels behind
  if (thread < choices) {
    route.expert[thread] = r.expert[thread];
    route.weight[thread] = r.weight[thread];
    a.grouping.pairs[thread] = r.pairs[thread];
  }
  if (thread < route.rows) route.shared_weight[thread] = r.shared_weight[thread];
  if (thread <= r.expert_blocks) a.grouping.blocks[thread] = r.blocks[thread];
  if (thread == 0) *a.grouping.block_count = r.expert_blocks + 1;
}

template <int kTiles, bool kShared>
__global__ void __launch_bounds__(kStreamThreads, kTiles == 1 ? 4 : 2)
    up_kernel(const __grid_constant__ ExpertsUp a, int stage_bytes, int width, int shared_shares) {
  extern __shared__ __align__(128) unsigned char shared_memory[];
  __shared__ uint64_t barriers[kStages + 1];
  constexpr int kPartSums = kStreamWarps * kSliceSums<kTiles>;
  start_next();
  const Lane me;
  Stages<> stages(shared_memory, barriers, stage_bytes);
  const Transfer transfer(barriers + kStages);
  auto* const sums = reinterpret_cast<float*>(shared_memory + kStages * stage_bytes);
  auto* const rows = reinterpret_cast<uint8_t*>(sums + 2 * kPartSums);
  // The first blocks of threads do the shared expert's units.
  const bool shared = static_cast<int>(blockIdx.x) < shared_shares;
  const TileStack(&w)[2] = shared ? a.shared : a.w;
  const bool coded = is_coded(w[0].format);
  const int tiles = w[0].tiles, shared_blocks = a.groups.shared_blocks();
  const int pieces[2] = {piece_blocks(w[0], stage_bytes), piece_blocks(w[1], stage_bytes)};
  __syncthreads();
  Range units{0, 0};
  if (shared) units = range_of(shared_blocks * tiles, static_cast<int>(blockIdx.x), shared_shares);

  const RowBlock* blocks = a.groups.blocks;
  const int32_t* pairs = a.groups.pairs;
  int ahead = units.begin, ahead_tile = 0, ahead_matrix = 0, ahead_part = 0, ahead_block = 0;
  const auto open_unit = [&] {
    const int block = ahead / tiles;
    ahead_tile = ahead - block * tiles;
    ahead_matrix = shared ? 0 : blocks[shared_blocks + block].matrix;
  };
  const auto refill = [&] {
    if (ahead >= units.end) return;
    const TileStack& m = w[ahead_part];
    const int piece = min(pieces[ahead_part], m.blocks - ahead_block);
    stages.open(piece * m.block_bytes);
    stages.copy(0,
                m.values + ahead_matrix * m.matrix_bytes +
                    (static_cast<int64_t>(ahead_tile) * m.blocks + ahead_block) * m.block_bytes,
                piece * m.block_bytes);
    stages.close();
    ahead_block += piece;
    if (ahead_block < m.blocks) return;
    ahead_block = 0;
    ahead_part ^= 1;
    if (ahead_part == 0 && ++ahead < units.end && ++ahead_tile == tiles) open_unit();
  };
  const auto begin = [&] {
    if (!Stages<>::fills(me.warp) || units.begin == units.end) return;
    ahead = units.begin;
    open_unit();
#pragma unroll 1
    for (int i = 0; i < kStages; ++i) refill();
  };
  if (shared) begin();
  wait_for_inputs();
  if (kShared) {
    if (!coded)
      stage_rows(
          a.groups.rows, a.k, width, false, [&](int r) { return a.x + r * a.x_stride; }, rows,
          me.warp, kStreamWarps);
    else if (threadIdx.x == 0)
      transfer.request(rows, a.codes, a.groups.rows * row_pitch(width));
  }
  if (kTiles == 1 && a.route.logits != nullptr && !shared) {
    __shared__ __align__(16) unsigned char routing_memory[sizeof(Routing)];
    Routing& routing = *reinterpret_cast<Routing*>(routing_memory);
    route_few(a, static_cast<int>(blockIdx.x) == shared_shares, routing);
    blocks = routing.blocks;
    pairs = routing.pairs;
    units = range_of(routing.expert_blocks * tiles, static_cast<int>(blockIdx.x) - shared_shares,
                     static_cast<int>(gridDim.x) - shared_shares);
  } else {
    if (!shared)
      units = range_of((*a.groups.block_count - shared_blocks) * tiles,
                       static_cast<int>(blockIdx.x) - shared_shares,
                       static_cast<int>(gridDim.x) - shared_shares);
    __syncthreads();
  }
  if (!shared) begin();
  if (kShared && coded) transfer.wait();

  const int capacity = a.groups.capacity();
  Inputs<kTiles, kShared> x;
  if constexpr (!kShared) x.k_end = readable_inputs(a.x, a.x_stride, a.k);
  int number = -1;
  RowBlock block{};
  int tile = units.begin % tiles;
#pragma unroll 1
  for (int unit = units.begin; unit < units.end; ++unit) {
    if (number < 0 || tile == tiles) {
      if (tile == tiles) tile = 0;
      number = unit / tiles;
      // The shared expert's blocks are known without the table.
      block =
          shared ? RowBlock{-1, number * capacity, min(capacity, a.groups.rows - number * capacity)}
                 : blocks[shared_blocks + number];
      const auto row_of = [&](int r) {
        return shared ? block.begin + r : pairs[block.begin + r] / a.groups.top_k;
      };
      if constexpr (kShared) {
        point_at(x, me, block.count, width,
                 [&](int r) { return rows + row_of(r) * row_pitch(width); });
      } else {
        point_at(x, me, block.count, width, [&](int r) -> const uint8_t* {
          if (coded) return a.codes + static_cast<int64_t>(row_of(r)) * row_pitch(width);
          return reinterpret_cast<const uint8_t*>(a.x + row_of(r) * a.x_stride);
        });
      }
    }
#pragma unroll 1
    for (int part = 0; part < 2; ++part) {
      const TileStack& m = w[part];
      const BlockFormat format = format_of(m);
      Sums<kTiles> slice = {};
#pragma unroll 1
      for (int at = 0; at < m.blocks; at += pieces[part]) {
        const uint32_t from = stages.wait();
        multiply_blocks<kTiles, kShared>(format, from + me.warp * m.block_bytes,
                                         blocks_of(me.warp, min(pieces[part], m.blocks - at)),
                                         at + me.warp, kStreamWarps, me, x, slice);
        stages.release();
        if (at + pieces[part] >= m.blocks)
          keep_sums<kTiles>(slice, me, sums + part * kPartSums + me.warp * kSliceSums<kTiles>);
        __syncthreads();
        if (Stages<>::fills(me.warp)) refill();
      }
    }
    for (int i = static_cast<int>(threadIdx.x); i < 16 * block.count; i += kStreamThreads) {
      const int output = i % 16, n = tile * 16 + output;
      if (n >= w[0].n) continue;
      const int64_t row = shared ? block.begin + i / 16 : pairs[block.begin + i / 16];
      const float gate = total_of<kTiles>(sums, output, i / 16);
      const float up = total_of<kTiles>(sums + kPartSums, output, i / 16);
      __nv_bfloat16* const out =
          shared ? a.shared_out + row * a.shared_stride : a.out + row * a.out_stride;
      out[n] = __float2bfloat16(silu(gate) * up);
    }
    __syncthreads();
    ++tile;
  }
}

template <int kTiles>
void run(cudaStream_t stream, const Gpu& gpu, const ExpertsUp& args) {
  const int width = padded_inputs(args.k);
  const Grouping& groups = args.groups;
  int64_t bytes = 2 * kStreamWarps * kSliceSums<kTiles> * int64_t{4};
  const int64_t rows = static_cast<int64_t>(groups.rows) * row_pitch(width);
  const bool shared =
      kStages * kSmallStage + bytes + rows <= kMaxShared - static_cast<int64_t>(sizeof(Routing));
  if (shared) bytes += rows;
  if (!args.has_codes && (is_coded(args.w[0].format) || is_coded(args.shared[0].format)))
    code_rows(stream, {.x = args.x,
                       .x_stride = args.x_stride,
                       .rows = groups.rows,
                       .k = args.k,
                       .codes = args.codes});
  const int stage_bytes = stage_for(gpu, bytes + static_cast<int64_t>(sizeof(Routing)));
  bytes += kStages * stage_bytes;
  const auto cost = [](const TileStack(&w)[2]) {
    return static_cast<int64_t>(w[0].tiles) * w[0].blocks * (w[0].block_bytes + w[1].block_bytes);
  };
  const int most =
      gpu.multiprocessors *
      resident_blocks(gpu, bytes + static_cast<int64_t>(sizeof(Routing)), kResidentBlocks + 1);
  const int64_t pairs = static_cast<int64_t>(groups.rows) * groups.top_k;
  const int64_t expert_units =
      (groups.max_blocks - groups.shared_blocks()) * static_cast<int64_t>(args.w[0].tiles);
  const int64_t shared_units = groups.shared_blocks() * static_cast<int64_t>(args.shared[0].tiles);
  const int grid = static_cast<int>(std::min<int64_t>(most, expert_units + shared_units));
  // The shared expert's share of the bytes, when each choice is of another expert; then as many
  // blocks of threads as let none have more units than another.
  const int64_t shared_cost = groups.shared_blocks() * cost(args.shared);
  const int64_t expert_cost =
      std::min<int64_t>(pairs, groups.max_blocks - groups.shared_blocks()) * cost(args.w);
  const int64_t wanted = std::clamp<int64_t>(shared_cost * grid / (shared_cost + expert_cost), 1,
                                             std::min<int64_t>(shared_units, grid - 1));
  const int64_t each = std::max<int64_t>(1, shared_units / wanted);
  const int shares =
      static_cast<int>(std::clamp<int64_t>((shared_units + each - 1) / each, 1, grid - 1));
  launch(stream, dim3(static_cast<unsigned>(grid)), dim3(kStreamThreads),
         static_cast<size_t>(bytes), shared ? up_kernel<kTiles, true> : up_kernel<kTiles, false>,
         args, stage_bytes, width, shares);
}

}  // namespace

bool can_route(const RouteRows& route) {
  return route.rows <= kStreamWarps && route.experts <= 8 * kWarp && route.top_k <= kWarp &&
         route.rows * route.top_k <= kRouteChoices;
}

void experts_up(cudaStream_t stream, const Gpu& gpu, const ExpertsUp& args) {
  if (args.groups.rows == 0) return;
  for (const auto* w : {args.w, args.shared})
    CHECK(w[0].format == w[1].format && w[0].row_scales == nullptr, "experts in ",
          weight_format_name(w[0].format), " and ", weight_format_name(w[1].format));
  if (args.groups.capacity() == 8)
    run<1>(stream, gpu, args);
  else
    run<4>(stream, gpu, args);
}

}  // namespace pewter::cuda
