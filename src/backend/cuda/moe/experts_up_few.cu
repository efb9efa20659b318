// Gate and up matrices of the experts, SiLU and product, for so few rows that all of them stay in
// shared memory and every block of threads routes them for itself. experts_up.cu is the plain twin.
//
// Split of work: as there, but a ninth warp requests the weights. The shared expert's are on their
// way before the kernel before has ended, the others' as soon as the rows are routed.
// Bytes: the matrices of the experts met, from memory once. Precision and order of sums: the
// twin's. Limits: the way from the logits to the first weights, and instructions that are fetched
// once: the code is short before it is anything else. 66 % of copy bandwidth for one row of the
// 122B on an H200.

#include <algorithm>

#include "backend/cuda/linear/flow.cuh"
#include "backend/cuda/linear/held.cuh"
#include "backend/cuda/linear/parts.cuh"
#include "backend/cuda/moe/experts_up_few.h"
#include "backend/cuda/moe/gated_output.cuh"
#include "backend/cuda/moe/routing.cuh"

namespace pewter::cuda {
namespace {

constexpr int kRows = kGatedRows, kPartSums = kGatedSums;
static_assert(kStreamWarps == kFlowWarps);

struct Plan {
  int stage_bytes, stage_count;
  int shared_piece, routed_piece;  // blocks of a tile that a stage has room for
  int width;                       // of rows in shared memory
  int shared_shares;               // blocks of threads of the shared expert, the first ones
  Shares shared;                   // their units
  Shares routed;                   // the others', of one row
};

// What a stage of weights is.
struct Task {
  int block;  // of rows, in the routing's table; -1: there are no more
  int tile, part;
  int blocks, first;  // of k
  bool ends;          // the part
};

// Requests the units of a block of threads, by one thread. first_block: of the table.
__device__ inline void request_units(const TileStack (&w)[2], const RowBlock* table,
                                     int first_block, int begin, int end, int piece,
                                     Flow<Task>& flow) {
  const int tiles = w[0].tiles, k_blocks = w[0].blocks, block_bytes = w[0].block_bytes;
  int block = first_block + begin / tiles, tile = begin % tiles;
#pragma unroll 1
  for (int unit = begin; unit < end; ++unit) {
    const int64_t at = max(table[block].matrix, 0) * w[0].matrix_bytes +
                       static_cast<int64_t>(tile * k_blocks) * block_bytes;
#pragma unroll 1
    for (int part = 0; part < 2; ++part) {
      const uint8_t* from = w[part].values + at;
#pragma unroll 1
      for (int first = 0; first < k_blocks; first += piece) {
        const int count = min(piece, k_blocks - first), bytes = count * block_bytes;
        flow.send({block, tile, part, count, first, first + piece >= k_blocks}, bytes);
        flow.copy(0, from, bytes);
        flow.next();
        from += bytes;
      }
    }
    if (++tile == tiles) tile = 0, ++block;
  }
  flow.send({.block = -1}, 0);
}

// kMost: rows of the step at most. kHeld: blocks of k of a warp, whose inputs are held in registers
// for matrices of int4; 0: not so.
template <int kMost, int kHeld>
__global__ void __launch_bounds__(kFlowThreads, register_blocks(kResidentBlocks))
    few_kernel(const __grid_constant__ ExpertsUp a, const __grid_constant__ Plan plan) {
  extern __shared__ __align__(128) unsigned char shared_memory[];
  __shared__ FlowMemory<Task> flow_memory;
  __shared__ uint64_t rows_here;
  __shared__ __align__(16) unsigned char routing_memory[sizeof(Routing<kMost>)];
  auto& routing = *reinterpret_cast<Routing<kMost>*>(routing_memory);
  const Lane me;
  const int thread = static_cast<int>(threadIdx.x), index = static_cast<int>(blockIdx.x);
  const int step_rows = kMost == 1 ? 1 : a.groups.rows;
  const bool shared = index < plan.shared_shares;
  const TileStack(&w)[2] = shared ? a.shared : a.w;
  constexpr int kSharedBlocks = 1;  // of rows
  Flow<Task> flow(flow_memory, shared_memory, plan.stage_bytes, plan.stage_count);
  Transfer transfer(&rows_here);

  if (shared && thread == 0) routing.blocks[0] = {-1, 0, step_rows};
  auto* const sums = reinterpret_cast<float*>(shared_memory + plan.stage_count * plan.stage_bytes);
  auto* const rows = reinterpret_cast<uint8_t*>(sums + 4 * kPartSums);
  __syncthreads();

  if (me.warp == kFlowWarps) {
    if (!shared) wait_as_ninth();
    if (me.lane != 0) return;
    const Shares share = shared ? plan.shared
                         : kMost == 1
                             ? plan.routed
                             : Shares::of((routing.block_count - kSharedBlocks) * w[0].tiles,
                                          static_cast<int>(gridDim.x) - plan.shared_shares);
    const int place = index - (shared ? 0 : plan.shared_shares);
    request_units(w, routing.blocks, shared ? 0 : kSharedBlocks, share.begin(place),
                  share.begin(place + 1), shared ? plan.shared_piece : plan.routed_piece, flow);
    return;
  }

  const bool coded = is_coded(w[0].format), tells = index == plan.shared_shares;
  const int pitch = row_pitch(plan.width);
  const auto begin_rows = [&] {
    wait_for_inputs();
    start_next();  // not before: the next kernel looks at the logits or the choice before it waits
    if (thread == 0)
      request_rows(transfer, rows, step_rows, plan.width, coded, a.x, a.x_stride, a.codes);
  };
  // Logits that arrive do so before the router ends.
  const bool arrive = kMost == 1 && a.route.words.are_used();
  if (!arrive) begin_rows();
  if (!shared) route_few(a.route, routing, tells, pass_ninth, sync_flow);
  if (arrive) begin_rows();
  if (tells) tell(a.route, a.grouping, routing, sync_flow);
  transfer.wait();

  Inputs<kRows, true> x;
  const BlockFormat format = format_of(w[0]);
  const auto point = [&](const RowBlock& block) {
    point_at(x, me, block.count, plan.width, coded, [&](int r) {
      const int row = kMost == 1 ? 0
                      : shared   ? block.begin + r
                                 : routing.pairs[block.begin + r] / a.groups.top_k;
      return rows + row * pitch;
    });
  };
  HeldRows<kHeld> held;
  const bool holds = kHeld > 0 && coded;
  if (kMost == 1) {
    point({.count = 1});
    if (holds) held.load(x, me);
  }
  Sums<kRows> slice = {};
  int buffer = 0, pointed_at = -1;
#pragma unroll 1
  for (;;) {
    const Task task = flow.receive();
    if (task.block < 0) break;
    if (kMost > 1 && task.block != pointed_at) {
      pointed_at = task.block;
      point(routing.blocks[task.block]);
      if (holds) held.load(x, me);
    }
    const uint32_t at = flow.address() + me.warp * format.block_bytes;
    const int blocks = blocks_of(me.warp, task.blocks), first = task.first + me.warp;
    if constexpr (kHeld > 0) {
      if (holds)
        multiply_held(format, at, me, held, slice);
      else
        multiply_blocks<false, Formats::kPlain>(format, at, blocks, first, kFlowWarps, me, x,
                                                slice);
    } else {
      multiply_blocks<false, Formats::kCommon>(format, at, blocks, first, kFlowWarps, me, x, slice);
    }
    flow.release();
    if (!task.ends) continue;
    float* const to = sums + buffer * 2 * kPartSums;
    keep_sums<kRows>(slice, me, to + task.part * kPartSums + me.warp * kSliceSums<kRows>);
#pragma unroll
    for (float& sum : slice[0]) sum = 0;
    if (task.part == 0) continue;
    buffer ^= 1;
    sync_flow();
    // Other warps each time.
    const int writer = thread ^ buffer * kStreamThreads / 2;
    const RowBlock block = routing.blocks[task.block];
    const int n = task.tile * 16 + writer % 16;
    if (writer >= 16 * block.count || n >= w[0].n) continue;
    const int64_t row =
        shared ? block.begin + writer / 16 : routing.pairs[block.begin + writer / 16];
    write_gated(a, shared, to, n, writer / 16, row);
  }
}

// How a launch shares out its memory; no bytes: not at all.
struct Launch {
  StagePlan stages{};
  int64_t bytes = 0, own = 0;
};
Launch plan_for(const Gpu& gpu, const ExpertsUp& args) {
  const Grouping& groups = args.groups;
  const TileStack &w = args.w[0], &shared = args.shared[0];
  if (!gpu.has_bulk_copies || args.route.logits == nullptr || groups.rows > kFewRouted ||
      !is_common(w) || !is_common(shared) ||
      ((is_coded(w.format) || is_coded(shared.format)) && !args.has_codes) || args.k % 128 != 0 ||
      args.x_stride % 8 != 0)
    return {};
  const auto own =
      static_cast<int64_t>(groups.rows == 1 ? sizeof(Routing<1>) : sizeof(Routing<kFewRouted>)) +
      static_cast<int64_t>(sizeof(FlowMemory<Task>)) + 64;
  const int64_t fixed = 4 * kPartSums * int64_t{4} + int64_t{groups.rows} * row_pitch(args.k);
  const StagePlan stages = plan_stages(fixed + own);
  const int64_t bytes = fixed + int64_t{stages.count} * stages.bytes;
  if (bytes + own > kMaxShared) return {};
  return {stages, bytes, own};
}

}  // namespace

bool hears_of_logits(const Gpu& gpu, const ExpertsUp& args) {
  return args.groups.rows == 1 && plan_for(gpu, args).bytes > 0;
}

bool up_few(cudaStream_t stream, const Gpu& gpu, const ExpertsUp& args) {
  const auto [stages, bytes, own] = plan_for(gpu, args);
  if (bytes == 0) return false;
  const Grouping& groups = args.groups;
  const TileStack &w = args.w[0], &shared = args.shared[0];
  const bool one = groups.rows == 1;
  const int resident = resident_blocks(gpu, bytes + own, kResidentBlocks);
  const int most = gpu.multiprocessors * resident;
  const int pairs = groups.rows * groups.top_k, units = pairs * w.tiles;
  // Where two fit, each of the router's blocks of threads, still there, leaves room for one.
  const int router = args.route.words.are_used() && resident > 1 ? args.route.experts / 16 + 1 : 0;
  const int grid = std::min(std::max(most - router, most / 2), units + shared.tiles);
  // The shared expert's share of the bytes, when each choice is of another expert; then as many
  // blocks of threads as let none have more units than another.
  const auto cost = [](const TileStack& of) {
    return int64_t{of.tiles} * of.blocks * of.block_bytes;
  };
  const int64_t all = cost(shared) + pairs * cost(w);
  const int wanted =
      std::clamp(static_cast<int>(cost(shared) * grid / all), 1, std::min(shared.tiles, grid - 1));
  const int each = shared.tiles / wanted;
  const int shares = std::clamp((shared.tiles + each - 1) / each, 1, grid - 1);

  const Plan plan{.stage_bytes = stages.bytes,
                  .stage_count = stages.count,
                  .shared_piece = piece_blocks(shared, stages.bytes),
                  .routed_piece = piece_blocks(w, stages.bytes),
                  .width = args.k,
                  .shared_shares = shares,
                  .shared = Shares::of(shared.tiles, shares),
                  .routed = Shares::of(units, grid - shares)};
  // Tiles of int4 that a stage has whole; both matrices are as wide.
  const bool whole = (!is_coded(w.format) || plan.routed_piece == w.blocks) &&
                     (!is_coded(shared.format) || plan.shared_piece == shared.blocks);
  const int held = whole ? held_blocks(args.k / 128) : 0;
  const auto kernel = held == 3   ? (one ? few_kernel<1, 3> : few_kernel<kFewRouted, 3>)
                      : held == 2 ? (one ? few_kernel<1, 2> : few_kernel<kFewRouted, 2>)
                                  : (one ? few_kernel<1, 0> : few_kernel<kFewRouted, 0>);
  launch(stream, dim3(static_cast<unsigned>(grid)), dim3(kFlowThreads), static_cast<size_t>(bytes),
         kernel, args, plan);
  return true;
}

}  // namespace pewter::cuda
