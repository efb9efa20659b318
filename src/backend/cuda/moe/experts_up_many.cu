// Gate and up matrices of the experts, SiLU and product, for up to 64 rows that are routed already.
// experts_up.cu is the plain twin.
//
// Split of work: as there: each block of threads has a stretch of units, which are two or three
// experts' at most. A ninth warp requests an expert's rows, then its tiles; the eight others take
// the rows into registers and meet the tiles with them, so that what flows through shared memory
// is weights. Whoever has the shared expert, whose rows are bf16 and stay in shared memory, gets
// fewer bytes: they cost half as much again.
// Bytes: the matrices of the experts met, once per four rows of theirs; their rows from L2 once per
// block of threads. Precision and order of sums: the twin's. Limits: memory: of copy bandwidth 85 %
// for 4 rows of the 122B on an H200, 91 % for 8, 94 % for 16, 96 % for 32 sequences.

#include <algorithm>

#include "backend/cuda/linear/coded_rows.h"
#include "backend/cuda/linear/flow.cuh"
#include "backend/cuda/linear/held.cuh"
#include "backend/cuda/linear/parts.cuh"
#include "backend/cuda/moe/experts_up_many.h"
#include "backend/cuda/moe/gated_output.cuh"
#include "backend/cuda/moe/row_blocks.cuh"

namespace pewter::cuda {
namespace {

constexpr int kRows = kGatedRows, kPartSums = kGatedSums;
static_assert(kStreamWarps == kFlowWarps);

struct Plan {
  int stage_bytes, stages;         // of matrices of int4
  int plain_bytes, plain_stages;   // of others, whose rows lie behind
  int shared_piece, routed_piece;  // blocks of a tile that a stage has room for
  int width;                       // of rows in shared memory
  RoleSplit split;
};

// What a stage is: rows that the tiles behind it meet, or a piece of a tile.
struct Task {
  enum class Kind : int8_t { kRows, kPiece, kEnd } kind;
  bool ends;  // the part
  int part;   // 0 gate, 1 up
  int tile;
  int blocks, first;  // of k
  RowList rows;
};

// Requests units begin … end − 1 of a block of threads. By a warp, of which one lane asks.
__device__ inline void request_units(const ExpertsUp& a, const Plan& plan, const RowBlocks& table,
                                     int begin, int end, Flow<Task>& flow) {
  const bool shared = table.shared;
  const int lane = table.lane;
  const TileStack(&w)[2] = shared ? a.shared : a.w;
  const bool coded = is_coded(w[0].format);
  const int tiles = w[0].tiles, k_blocks = w[0].blocks, block_bytes = w[0].block_bytes;
  const int piece = shared ? plan.shared_piece : plan.routed_piece, pitch = row_pitch(plan.width);
  int block = begin / tiles, tile = begin - block * tiles;
  RowBlock next = begin < end ? table.block(block) : RowBlock{};
#pragma unroll 1
  for (int unit = begin; unit < end; ++block, tile = 0) {
    const RowBlock rows = next;
    const int last = min(end, unit + tiles - tile);
    const RowList list = table.rows_of(rows);
    if (last < end) next = table.block(block + 1);
    if (lane == 0) {
      flow.send({.kind = Task::Kind::kRows, .rows = list}, coded ? list.count * pitch : 0);
#pragma unroll
      for (int r = 0; r < kRows; ++r)
        if (coded && r < list.count)
          flow.bring(
              r * pitch,
              a.codes + step_row(shared, list.row[r], a.groups.top_k) * static_cast<int64_t>(pitch),
              pitch);
    }
    flow.next();
#pragma unroll 1
    for (; unit < last; ++unit, ++tile) {
      const int64_t at = max(rows.matrix, 0) * w[0].matrix_bytes +
                         static_cast<int64_t>(tile * k_blocks) * block_bytes;
#pragma unroll 1
      for (int part = 0; part < 2; ++part) {
        const uint8_t* from = w[part].values + at;
#pragma unroll 1
        for (int first = 0; first < k_blocks; first += piece) {
          const int count = min(piece, k_blocks - first), bytes = count * block_bytes;
          if (lane == 0) {
            flow.send({.kind = Task::Kind::kPiece,
                       .ends = first + piece >= k_blocks,
                       .part = part,
                       .tile = tile,
                       .blocks = count,
                       .first = first},
                      bytes);
            flow.copy(0, from, bytes);
          }
          flow.next();
          from += bytes;
        }
      }
    }
  }
  if (lane == 0) flow.send({.kind = Task::Kind::kEnd}, 0);
}

// kHeld: blocks of k of a warp, whose inputs are held in registers for matrices of int4; 0: there
// are none of int4.
template <int kHeld>
__global__ void __launch_bounds__(kFlowThreads, register_blocks(kResidentBlocks))
    many_kernel(const __grid_constant__ ExpertsUp a, const __grid_constant__ Plan plan) {
  extern __shared__ __align__(128) unsigned char shared_memory[];
  __shared__ FlowMemory<Task> flow_memory;
  __shared__ uint64_t rows_here;
  const Lane me;
  const int thread = static_cast<int>(threadIdx.x), index = static_cast<int>(blockIdx.x);
  wait_for_inputs();
  start_next();  // not before: the next kernel looks at the groups before it waits
  const int grid = static_cast<int>(gridDim.x);
  RowBlocks table(a.groups, me.lane, me.warp == kFlowWarps);
  const int routed_blocks = __ldcg(a.groups.block_count) - a.groups.shared_blocks();
  const int shared_shares = plan.split.shared_shares(routed_blocks, grid);
  const bool shared = table.shared = index < shared_shares;
  const TileStack(&w)[2] = shared ? a.shared : a.w;
  const bool coded = is_coded(w[0].format);
  Flow<Task> flow(flow_memory, shared_memory, coded ? plan.stage_bytes : plan.plain_bytes,
                  coded ? plan.stages : plan.plain_stages);
  uint8_t* const plain_rows = shared_memory + plan.plain_stages * plan.plain_bytes;
  auto* const sums = reinterpret_cast<float*>(shared_memory + plan.stages * plan.stage_bytes);
  Transfer transfer(&rows_here);
  __syncthreads();

  if (me.warp == kFlowWarps) {
    const Shares share = shared ? Shares::of(plan.split.shared_units, shared_shares)
                                : Shares::of(routed_blocks * w[0].tiles, grid - shared_shares);
    const int place = index - (shared ? 0 : shared_shares);
    request_units(a, plan, table, share.begin(place), share.begin(place + 1), flow);
    return;
  }

  const int pitch = row_pitch(plan.width);
  const BlockFormat format = format_of(w[0]);
  Inputs<kRows, true> x;
  HeldRows<kHeld> held;
  Sums<kRows> slice = {};
  // Who writes: other warps each time.
  int buffer = 0, count = 0, my_row = 0;
#pragma unroll 1
  for (;;) {
    const Task& task = flow.receive();
    if (task.kind == Task::Kind::kEnd) break;
    if (task.kind == Task::Kind::kRows) {
      count = task.rows.count;
      my_row = task.rows.row[thread / 16 % kRows];
      const uint8_t* const rows = coded ? shared_memory + flow.at * plan.stage_bytes : plain_rows;
      if (!coded) {
        sync_flow();  // nobody reads those before
        if (thread == 0)
          transfer.request(plain_rows, count, 2 * plan.width, pitch, [&](int r) {
            return reinterpret_cast<const uint8_t*>(
                a.x + step_row(shared, task.rows.row[r], a.groups.top_k) * a.x_stride);
          });
        transfer.wait();
      }
      point_at(x, me, count, plan.width, coded, [&](int r) { return rows + r * pitch; });
      if (coded) held.load(x, me);
      flow.release();
      continue;
    }
    const int part = task.part, tile = task.tile;
    const bool ends = task.ends;
    const uint32_t at = flow.address() + me.warp * format.block_bytes;
    if (!coded)
      multiply_blocks<false, Formats::kPlain>(format, at, blocks_of(me.warp, task.blocks),
                                              task.first + me.warp, kFlowWarps, me, x, slice);
    else
      multiply_held(format, at, me, held, slice);
    flow.release();
    if (!ends) continue;
    float* const to = sums + buffer * 2 * kPartSums;
    keep_sums<kRows>(slice, me, to + part * kPartSums + me.warp * kSliceSums<kRows>);
#pragma unroll
    for (float& sum : slice[0]) sum = 0;
    if (part == 0) continue;
    buffer ^= 1;
    sync_flow();
    const int writer = thread ^ buffer * kStreamThreads / 2;
    const int n = tile * 16 + writer % 16;
    if (writer >= 16 * count || n >= w[0].n) continue;
    write_gated(a, shared, to, n, writer / 16, my_row);
  }
}

}  // namespace

bool up_many(cudaStream_t stream, const Gpu& gpu, const ExpertsUp& args) {
  const Grouping& groups = args.groups;
  const TileStack &w = args.w[0], &shared = args.shared[0];
  const bool coded = is_coded(w.format) || is_coded(shared.format);
  const int held = coded ? held_blocks(args.k / 128) : 0;
  if (!gpu.has_bulk_copies || args.route.logits != nullptr || groups.rows > kFewRows ||
      !is_common(w) || !is_common(shared) || (coded && held == 0) || args.k % 128 != 0 ||
      reinterpret_cast<uintptr_t>(args.x) % 16 != 0 || args.x_stride % 8 != 0)
    return false;
  // A stage holds a tile of int4 or the rows that tiles meet; of other formats eight blocks.
  Plan plan{.stage_bytes = kRows * row_pitch(args.k), .width = args.k};
  for (const TileStack* stack : {&w, &shared}) {
    const int bytes = (is_coded(stack->format) ? stack->blocks : kFlowWarps) * stack->block_bytes;
    int& stage = is_coded(stack->format) ? plan.stage_bytes : plan.plain_bytes;
    stage = std::max(stage, static_cast<int>(round_up(bytes, 128)));
  }
  constexpr int kOwn = sizeof(FlowMemory<Task>) + 64, kSums = 4 * kPartSums * 4;
  const int room = static_cast<int>(kMaxShared) - kOwn - kSums;
  plan.stages = std::min(room / plan.stage_bytes, kMostFlowStages);
  const int all_stages = plan.stages * plan.stage_bytes;
  if (plan.plain_bytes > 0)
    plan.plain_stages =
        std::min((all_stages - kRows * row_pitch(args.k)) / plan.plain_bytes, kMostFlowStages);
  if (plan.stages < 3 || (plan.plain_bytes > 0 && plan.plain_stages < 2)) return false;
  const auto piece = [&](const TileStack& of) {
    return piece_blocks(of, is_coded(of.format) ? plan.stage_bytes : plan.plain_bytes);
  };
  plan.shared_piece = piece(shared);
  plan.routed_piece = piece(w);
  const auto cost = [](const TileStack& of) {
    return byte_cost(of.format) *
           static_cast<float>(int64_t{of.tiles} * of.blocks * of.block_bytes);
  };
  const int shared_units = groups.shared_blocks() * shared.tiles;
  plan.split = {.shared_cost = static_cast<float>(groups.shared_blocks()) * cost(shared),
                .block_cost = cost(w),
                .shared_units = shared_units};
  const int bytes = all_stages + kSums;

  if (coded && !args.has_codes)
    code_rows(stream, {.x = args.x,
                       .x_stride = args.x_stride,
                       .rows = groups.rows,
                       .k = args.k,
                       .codes = args.codes});
  const int most = gpu.multiprocessors * resident_blocks(gpu, bytes + kOwn, kResidentBlocks);
  const int64_t pairs = int64_t{groups.rows} * groups.top_k;
  const int grid = static_cast<int>(std::min<int64_t>(most, pairs * w.tiles + shared_units));
  const auto kernel = held == 3 ? many_kernel<3> : held == 2 ? many_kernel<2> : many_kernel<0>;
  launch(stream, dim3(static_cast<unsigned>(grid)), dim3(kFlowThreads), static_cast<size_t>(bytes),
         kernel, args, plan);
  return true;
}

}  // namespace pewter::cuda
