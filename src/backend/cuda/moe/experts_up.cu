// Gate and up matrices of the experts, SiLU and product.
//
// Split of work: a unit is 16 gate outputs and the same 16 of the up matrix of one expert, times
// one block of up to kRows rows; warps share it by slices of k as in linear/stream.cu. The first
// blocks of threads do the shared expert's units, whose weights are requested before the routing is
// known; the others take contiguous ranges of the routed experts' units. experts_up_few.cu does it
// for rows that route themselves, experts_up_many.cu for more, up to 64.
// Bytes: the matrices of the experts met, once per kRows rows; x from L2 once per block of threads.
// Precision: as in linear/stream.cu. Limits: memory, and the wait for routing: 67 % of copy
// bandwidth for 32 sequences of the 122B on an H200.

#include <algorithm>

#include "backend/cuda/linear/coded_rows.h"
#include "backend/cuda/linear/parts.cuh"
#include "backend/cuda/moe/experts.h"
#include "backend/cuda/moe/experts_up_few.h"
#include "backend/cuda/moe/experts_up_many.h"
#include "backend/cuda/moe/routing.cuh"

namespace pewter::cuda {
namespace {

template <int kRows, bool kShared>
__global__ void __launch_bounds__(kStreamThreads, register_blocks(kRows <= 8 ? 3 : 2))
    up_kernel(const __grid_constant__ ExpertsUp a, int stage_bytes, int stage_count, int width,
              int shared_shares) {
  extern __shared__ __align__(128) unsigned char shared_memory[];
  __shared__ uint64_t barriers[kMostStages + 1];
  constexpr int kPartSums = kStreamWarps * kSliceSums<kRows>;
  const Lane me;
  Stages<> stages(shared_memory, barriers, stage_bytes, stage_count);
  Transfer transfer(barriers + kMostStages);
  auto* const sums = reinterpret_cast<float*>(shared_memory + stage_count * stage_bytes);
  auto* const rows = reinterpret_cast<uint8_t*>(sums + 2 * kPartSums);
  // The first blocks of threads do the shared expert's units. Unit u is tile u % tiles of block u /
  // tiles.
  const int index = static_cast<int>(blockIdx.x);
  const bool shared = index < shared_shares;
  const TileStack(&w)[2] = shared ? a.shared : a.w;
  const bool coded = is_coded(w[0].format);
  const int tiles = w[0].tiles, k_blocks = w[0].blocks, block_bytes = w[0].block_bytes;
  const int shared_blocks = a.groups.shared_blocks();
  const int piece = piece_blocks(w[0], stage_bytes);
  __syncthreads();
  int unit = 0, end = 0;  // this block's
  const auto take = [&](int units, int place, int shares) {
    const Shares all = Shares::of(units, shares);
    unit = all.begin(place), end = all.begin(place + 1);
  };
  if (shared) take(shared_blocks * tiles, index, shared_shares);

  const RowBlock* blocks = a.groups.blocks;
  const int32_t* pairs = a.groups.pairs;
  int ahead = 0, ahead_tile = 0, ahead_block = 0, ahead_part = 0;
  const uint8_t *from = nullptr, *from_other = nullptr;  // of the part at hand and of the other
  const auto open_unit = [&] {
    const int block = ahead / tiles;
    ahead_tile = ahead - block * tiles;
    const int64_t matrix = shared ? 0 : blocks[shared_blocks + block].matrix;
    const int64_t at =
        matrix * w[0].matrix_bytes + static_cast<int64_t>(ahead_tile) * k_blocks * block_bytes;
    from = w[0].values + at;
    from_other = w[1].values + at;
  };
  const auto refill = [&] {
    if (ahead >= end) return;
    const int count = min(piece, k_blocks - ahead_block), bytes = count * block_bytes;
    stages.open(bytes);
    stages.copy(0, from, bytes);
    stages.close();
    from += bytes;
    ahead_block += count;
    if (ahead_block < k_blocks) return;
    ahead_block = 0;
    ahead_part ^= 1;
    const uint8_t* const other = from_other;
    from_other = from;
    from = other;
    if (ahead_part == 0 && ++ahead < end && ++ahead_tile == tiles) open_unit();
  };
  const auto begin = [&] {
    if (!Stages<>::fills(me.warp) || unit == end) return;
    ahead = unit;
    open_unit();
#pragma unroll 1
    for (int i = 0; i < stage_count; ++i) refill();
  };
  if (shared) begin();
  wait_for_inputs();
  start_next();  // not before: the next kernel looks at the logits before it waits
  // The rows of a block, or, when they are no more, all of the step.
  const bool stays = a.groups.rows <= kRows;
  const auto row_codes = [&](int64_t r) { return a.codes + r * row_pitch(width); };
  if (kShared && stays) {
    if (!coded)
      stage_rows(
          a.groups.rows, a.k, width, false, [&](int r) { return a.x + r * a.x_stride; }, rows,
          me.warp, kStreamWarps);
    else if (threadIdx.x == 0)
      transfer.request(rows, a.groups.rows * row_pitch(width), a.codes);
  }
  const int others = static_cast<int>(gridDim.x) - shared_shares;
  if (kRows == 4 && a.route.logits != nullptr && !shared) {
    using Rows = Routing<kFewRouted>;
    __shared__ __align__(16) unsigned char routing_memory[sizeof(Rows)];
    Rows& routing = *reinterpret_cast<Rows*>(routing_memory);
    blocks = routing.blocks;
    pairs = routing.pairs;
    route_few(a.route, routing, index == shared_shares, [&] {
      take((routing.block_count - shared_blocks) * tiles, index - shared_shares, others);
      begin();
    });
    if (index == shared_shares) tell(a.route, a.grouping, routing);
  } else {
    if (!shared) {
      take((*a.groups.block_count - shared_blocks) * tiles, index - shared_shares, others);
      begin();
    }
    __syncthreads();
  }
  if (kShared && stays && coded) transfer.wait();

  const int capacity = a.groups.capacity();
  Inputs<kRows, kShared> x;
  if constexpr (!kShared) x.k_end = readable_inputs(a.x, a.x_stride, a.k);
  const BlockFormat format = format_of(w[0]);
  int number = -1;
  RowBlock block{};
  int tile = unit % tiles;
#pragma unroll 1
  for (; unit < end; ++unit, ++tile) {
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
      if (kShared && !stays) {
        if (!coded) {
          stage_rows(
              block.count, a.k, width, false, [&](int r) { return a.x + row_of(r) * a.x_stride; },
              rows, me.warp, kStreamWarps);
          __syncthreads();
        } else {
          if (threadIdx.x == 0)
            transfer.request(rows, block.count, row_pitch(width), row_pitch(width),
                             [&](int r) { return row_codes(row_of(r)); });
          transfer.wait();
        }
      }
      point_at(x, me, block.count, width, coded, [&](int r) -> const uint8_t* {
        if constexpr (kShared) return rows + (stays ? row_of(r) : r) * row_pitch(width);
        if (coded) return row_codes(row_of(r));
        return reinterpret_cast<const uint8_t*>(a.x + row_of(r) * a.x_stride);
      });
    }
#pragma unroll 1
    for (int part = 0; part < 2; ++part) {
      Sums<kRows> slice = {};
#pragma unroll 1
      for (int at = 0; at < k_blocks; at += piece) {
        const uint32_t stage = stages.wait();
        multiply_blocks<false>(format, stage + me.warp * block_bytes,
                               blocks_of(me.warp, min(piece, k_blocks - at)), at + me.warp,
                               kStreamWarps, me, x, slice);
        stages.release();
        if (at + piece >= k_blocks)
          keep_sums<kRows>(slice, me, sums + part * kPartSums + me.warp * kSliceSums<kRows>);
        __syncthreads();
        if (Stages<>::fills(me.warp)) refill();
      }
    }
    for (int i = static_cast<int>(threadIdx.x); i < 16 * block.count; i += kStreamThreads) {
      const int output = i % 16, n = tile * 16 + output;
      if (n >= w[0].n) continue;
      const int64_t row = shared ? block.begin + i / 16 : pairs[block.begin + i / 16];
      const float gate = total_of<kRows>(sums, output, i / 16);
      const float up = total_of<kRows>(sums + kPartSums, output, i / 16);
      __nv_bfloat16* const out =
          shared ? a.shared_out + row * a.shared_stride : a.out + row * a.out_stride;
      out[n] = __float2bfloat16(silu(gate) * up);
    }
    __syncthreads();
  }
}

template <int kRows>
void run(cudaStream_t stream, const Gpu& gpu, const ExpertsUp& args) {
  const int width = padded_inputs(args.k);
  const Grouping& groups = args.groups;
  int64_t bytes = 2 * kStreamWarps * kSliceSums<kRows> * int64_t{4};
  const int64_t rows = std::min<int64_t>(groups.rows, kRows) * row_pitch(width);
  const bool shared = kLeastStages * kSmallStage + bytes + rows <=
                      kMaxShared - static_cast<int64_t>(sizeof(Routing<kFewRouted>));
  if (shared) bytes += rows;
  if (!args.has_codes && (is_coded(args.w[0].format) || is_coded(args.shared[0].format)))
    code_rows(stream, {.x = args.x,
                       .x_stride = args.x_stride,
                       .rows = groups.rows,
                       .k = args.k,
                       .codes = args.codes});
  const StagePlan stages = plan_stages(bytes + static_cast<int64_t>(sizeof(Routing<kFewRouted>)));
  bytes += stages.count * stages.bytes;
  const auto cost = [](const TileStack(&w)[2]) {
    return static_cast<int64_t>(w[0].tiles) * w[0].blocks * (w[0].block_bytes + w[1].block_bytes);
  };
  const int most = gpu.multiprocessors *
                   resident_blocks(gpu, bytes + static_cast<int64_t>(sizeof(Routing<kFewRouted>)),
                                   kResidentBlocks);
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
  const auto kernel = shared ? up_kernel<kRows, true> : up_kernel<kRows, false>;
  launch(stream, dim3(static_cast<unsigned>(grid)), dim3(kStreamThreads),
         static_cast<size_t>(bytes), kernel, args, stages.bytes, stages.count, width, shares);
}

}  // namespace

bool can_route(const RouteRows& route) {
  return route.rows <= kFewRouted && route.experts <= kFewExperts && route.top_k <= kFewChosen;
}

void experts_up(cudaStream_t stream, const Gpu& gpu, const ExpertsUp& args) {
  if (args.groups.rows == 0) return;
  for (const auto* w : {args.w, args.shared})
    CHECK(w[0].format == w[1].format && w[0].row_scales == nullptr, "experts in ",
          weight_format_name(w[0].format), " and ", weight_format_name(w[1].format));
  if (up_few(stream, gpu, args) || up_many(stream, gpu, args)) return;
  if (args.groups.capacity() == 4)
    run<4>(stream, gpu, args);
  else
    run<32>(stream, gpu, args);
}

}  // namespace pewter::cuda
