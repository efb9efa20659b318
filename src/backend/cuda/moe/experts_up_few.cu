// Gate and up matrices of the experts, SiLU and product, for so few rows that all of them stay in
// shared memory and every block of threads routes them for itself. experts_up.cu is the plain twin;
// one row whose logits arrive by words has a shorter kernel where it can, experts_up_one.cu.
//
// Split of work: as there, but a ninth warp requests the weights. The shared expert's are on their
// way before the kernel before has ended, the others' as soon as the rows are routed: one row by
// that warp alone, from words that the router sends (RouteWords), two, or one without words, by the
// other eight.
// Bytes: the matrices of the experts met, from memory once. Precision and order of sums: the
// twin's. Limits: the way from the logits to the first weights, and instructions that are fetched
// once: the code is short before it is anything else. 64 % of copy bandwidth for one row of the
// 122B on an H200, by itself.

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

// What blocks of threads of one kind do.
struct Role {
  int piece;     // blocks of a tile that a stage has room for
  Shares units;  // of the routed experts those of one row
};
struct Plan {
  Role shared, routed;
  int stage_bytes, stage_count;
  int width;          // of rows in shared memory
  int shared_shares;  // blocks of threads of the shared expert, the first ones
};

// What a stage of weights is.
struct Task {
  int block;  // of rows: in the routing's table; of one row its slot; -1: there are no more
  int tile, part;
  int blocks, first;  // of k
  bool ends;          // the part
};

// The units of a block of threads, requested one after the other, by one thread. Unit u is tile
// u % tiles of block u / tiles. What does not depend on the routing is done before that is known.
struct Requests {
  const TileStack (&w)[2];
  Flow<Task>& flow;
  int block, tile, units;                 // units: still to come
  int piece, part = 0, first = 0, count;  // blocks of k
  const uint8_t *from, *other;            // what is requested next; the same of the other part
  int64_t matrix_bytes;

  __device__ Requests(const TileStack (&stacks)[2], const Shares& shares, int place,
                      int most_blocks, Flow<Task>& to)
      : w(stacks), flow(to), piece(most_blocks), matrix_bytes(w[0].matrix_bytes) {
    tile = shares.begin(place);
    units = shares.begin(place + 1) - tile;
    for (block = 0; tile >= w[0].tiles; tile -= w[0].tiles) ++block;
    const int64_t before = static_cast<int64_t>(tile) * (w[0].blocks * w[0].block_bytes);
    from = w[0].values + before;
    other = w[1].values + before;
    settle(block, tile, units, piece, matrix_bytes, from, other);
  }
  // Of how many blocks this has to know.
  __device__ int known_blocks() const {
    int known = units > 0 ? block + 1 : 0;
    for (int left = tile + units; left > w[0].tiles; left -= w[0].tiles) ++known;
    return known;
  }
  // Waits for an empty stage, which the next piece will fill.
  __device__ void open() {
    count = min(piece, w[0].blocks - first);
    flow.send({block, tile, part, count, first, first + count == w[0].blocks},
              count * w[0].block_bytes);
  }
  // All pieces, when the first is open and its block's matrix known; matrix_of(block): the others'.
  template <typename MatrixOf>
  __device__ void run(int matrix, const MatrixOf& matrix_of) {
    from += matrix * matrix_bytes, other += matrix * matrix_bytes;
#pragma unroll 1
    while (units > 0) {
      const int bytes = count * w[0].block_bytes;
      flow.copy(0, from, bytes);
      flow.next();
      from += bytes;
      first += count;
      if (first == w[0].blocks) {
        const uint8_t* const next = other;
        other = from, from = next;
        first = 0;
        part ^= 1;
        if (part == 0 && --units == 0) break;
        if (part == 0 && ++tile == w[0].tiles) {
          const int64_t at = matrix_of(++block) * matrix_bytes;
          tile = 0;
          from = w[0].values + at, other = w[1].values + at;
        }
      }
      open();
    }
    flow.send({.block = -1}, 0);
  }
};

// kMost: rows of the step at most; of one row the logits arrive as words. kHeld: blocks of k of a
// warp, whose inputs are held in registers for matrices of int4; 0: not so.
template <int kMost, int kHeld>
__global__ void __launch_bounds__(kFlowThreads, register_blocks(kResidentBlocks))
    few_kernel(const __grid_constant__ ExpertsUp a, const __grid_constant__ Plan plan) {
  constexpr bool kOne = kMost == 1;
  extern __shared__ __align__(128) unsigned char shared_memory[];
  __shared__ FlowMemory<Task> flow_memory;
  __shared__ uint64_t rows_here;
  __shared__ int32_t expert[kFewChosen];  // of one row
  __shared__ __align__(16) unsigned char routing_memory[kOne ? 16 : sizeof(Routing<kMost>)];
  auto& routing = *reinterpret_cast<Routing<kMost>*>(routing_memory);  // of more
  const Lane me;
  const int thread = static_cast<int>(threadIdx.x), index = static_cast<int>(blockIdx.x);
  const int step_rows = kOne ? 1 : a.groups.rows;
  const bool shared = index < plan.shared_shares, requests = me.warp == kFlowWarps;
  const TileStack(&w)[2] = shared ? a.shared : a.w;
  constexpr int kSharedBlocks = 1;  // of rows
  const Role& role = shared ? plan.shared : plan.routed;
  Flow<Task> flow(flow_memory, shared_memory, plan.stage_bytes, plan.stage_count);
  Transfer transfer(&rows_here);

  if (!kOne && shared && thread == 0) routing.blocks[0] = {-1, 0, step_rows};
  auto* const sums = reinterpret_cast<float*>(shared_memory + plan.stage_count * plan.stage_bytes);
  auto* const rows = reinterpret_cast<uint8_t*>(sums + 4 * kPartSums);
  __syncthreads();

  const int place = index - (shared ? 0 : plan.shared_shares);
  // Of one row the warp that requests weights routes for itself, as far as it has to. For others to
  // read a warp routes that has nothing else to do: the shared expert's weights are on their way.
  const bool tells = kOne ? index == 0 && me.warp == 0 : index == plan.shared_shares;
  Choice choice{};
  if constexpr (kOne) {
    if (tells || requests) {
      Requests units(w, role.units, place, role.piece, flow);
      if (requests && me.lane == 0 && units.units > 0) units.open();
      __syncwarp();
      if (tells || !shared)
        choice = hear_choice(a.route, tells ? a.route.top_k : units.known_blocks());
      if (requests) {
        if (me.lane < kFewChosen) expert[me.lane] = choice.expert;
        const int matrix = __shfl_sync(0xFFFFFFFFu, choice.expert, units.block);
        __syncwarp();
        if (me.lane == 0) units.run(matrix, [&](int slot) { return shared ? 0 : expert[slot]; });
        return;
      }
    }
  } else if (requests) {
    if (!shared) wait_as_ninth();
    if (me.lane != 0) return;
    Requests units(w,
                   shared ? role.units
                          : Shares::of((routing.block_count - kSharedBlocks) * w[0].tiles,
                                       static_cast<int>(gridDim.x) - plan.shared_shares),
                   place, role.piece, flow);
    if (!shared) units.block += kSharedBlocks;
    if (units.units > 0) units.open();
    const auto matrix_of = [&](int block) { return max(routing.blocks[block].matrix, 0); };
    units.run(matrix_of(units.block), matrix_of);
    return;
  }

  wait_for_inputs();
  start_next();  // not before: the next kernel looks at the logits or the choice before it waits
  const bool coded = is_coded(w[0].format);
  const int pitch = row_pitch(plan.width);
  if (thread == 0)
    request_rows(transfer, rows, step_rows, plan.width, coded, a.x, a.x_stride, a.codes);
  if constexpr (kOne) {
    if (tells) tell_choice(a.route, a.grouping, choice);
  } else {
    if (!shared) route_few(a.route, routing, tells, pass_ninth, sync_flow);
    if (tells) tell(a.route, a.grouping, routing, sync_flow);
  }
  transfer.wait();

  Inputs<kRows, true> x;
  const BlockFormat format = format_of(w[0]);
  const auto point = [&](const RowBlock& block) {
    point_at(x, me, block.count, plan.width, coded, [&](int r) {
      const int row = kOne     ? 0
                      : shared ? block.begin + r
                               : routing.pairs[block.begin + r] / a.groups.top_k;
      return rows + row * pitch;
    });
  };
  HeldRows<kHeld> held;
  const bool holds = kHeld > 0 && coded;
  if (kOne) point({.count = 1});
  Sums<kRows> slice = {};
  int buffer = 0, pointed_at = -1;
#pragma unroll 1
  for (;;) {
    const Task task = flow.receive();
    if (task.block < 0) break;
    if (!kOne && task.block != pointed_at) {
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
    const auto writer = static_cast<uint32_t>(thread ^ buffer * kStreamThreads / 2);
    const RowBlock block =
        kOne ? RowBlock{.begin = task.block, .count = 1} : routing.blocks[task.block];
    const int r = static_cast<int>(writer / 16), n = task.tile * 16 + static_cast<int>(writer % 16);
    if (r >= block.count || n >= w[0].n) continue;
    write_gated(a, shared, to, n, r,
                kOne || shared ? block.begin + r : routing.pairs[block.begin + r]);
  }
}

// How a launch shares out its memory; no bytes: not at all.
struct Launch {
  StagePlan stages{};
  int64_t bytes = 0, own = 0;
};
// one: row, of which words tell.
Launch plan_for(const Gpu& gpu, const ExpertsUp& args, bool one) {
  const Grouping& groups = args.groups;
  const TileStack &w = args.w[0], &shared = args.shared[0];
  if (!gpu.has_bulk_copies || args.route.logits == nullptr || groups.rows > kFewRouted ||
      !is_common(w) || !is_common(shared) ||
      ((is_coded(w.format) || is_coded(shared.format)) && !args.has_codes) || args.k % 128 != 0 ||
      args.x_stride % 8 != 0)
    return {};
  const auto own = static_cast<int64_t>((one ? 0 : sizeof(Routing<kFewRouted>)) +
                                        sizeof(FlowMemory<Task>) + 4 * kFewChosen + 64);
  const int64_t fixed = 4 * kPartSums * int64_t{4} + int64_t{groups.rows} * row_pitch(args.k);
  const StagePlan stages = plan_stages(fixed + own);
  const int64_t bytes = fixed + int64_t{stages.count} * stages.bytes;
  if (bytes + own > kMaxShared) return {};
  return {stages, bytes, own};
}

}  // namespace

bool hears_of_logits(const Gpu& gpu, const ExpertsUp& args) {
  return args.groups.rows == 1 && RouteWords::can_have(args.route.experts) &&
         plan_for(gpu, args, true).bytes > 0;
}

UpGrid grid_of(const Gpu& gpu, const ExpertsUp& args, int64_t bytes) {
  const Grouping& groups = args.groups;
  const TileStack &w = args.w[0], &shared = args.shared[0];
  const int resident = resident_blocks(gpu, bytes, kResidentBlocks);
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
  return {grid, shares};
}

bool up_few(cudaStream_t stream, const Gpu& gpu, const ExpertsUp& args) {
  const bool one = args.route.words.are_used();
  const auto [stages, bytes, own] = plan_for(gpu, args, one);
  if (bytes == 0) return false;
  if (one && up_one(stream, gpu, args)) return true;
  const TileStack &w = args.w[0], &shared = args.shared[0];
  const UpGrid grid = grid_of(gpu, args, bytes + own);
  const int units = args.groups.rows * args.groups.top_k * w.tiles;
  const Plan plan{
      .shared = {piece_blocks(shared, stages.bytes), Shares::of(shared.tiles, grid.shared)},
      .routed = {piece_blocks(w, stages.bytes), Shares::of(units, grid.all - grid.shared)},
      .stage_bytes = stages.bytes,
      .stage_count = stages.count,
      .width = args.k,
      .shared_shares = grid.shared};
  // Tiles of int4 that a stage has whole; both matrices are as wide.
  const auto is_whole = [](const TileStack& of, const Role& role) {
    return !is_coded(of.format) || role.piece == of.blocks;
  };
  const bool whole = is_whole(w, plan.routed) && is_whole(shared, plan.shared);
  const int held = whole ? held_blocks(args.k / 128) : 0;
  const auto kernel = one         ? few_kernel<1, 0>
                      : held == 3 ? few_kernel<kFewRouted, 3>
                      : held == 2 ? few_kernel<kFewRouted, 2>
                                  : few_kernel<kFewRouted, 0>;
  launch(stream, dim3(static_cast<unsigned>(grid.all)), dim3(kFlowThreads),
         static_cast<size_t>(bytes), kernel, args, plan);
  return true;
}

}  // namespace pewter::cuda
