// Gate and up matrices of the experts, SiLU and product, for so few rows that all of them stay in
// shared memory and every block of threads routes them for itself. experts_up.cu is the plain twin.
//
// Split of work: as there, but a ninth warp requests the weights. The shared expert's are on their
// way before the kernel before has ended, the others' as soon as the rows are routed.
// Bytes: the matrices of the experts met, from memory once. Precision and order of sums: the
// twin's. Limits: the way from the logits to the first weights, and instructions that are fetched
// once: the code is short before it is anything else.

#include <algorithm>

#include "backend/cuda/linear/flow.cuh"
#include "backend/cuda/linear/parts.cuh"
#include "backend/cuda/moe/experts_up_few.h"
#include "backend/cuda/moe/routing.cuh"

namespace pewter::cuda {
namespace {

constexpr int kRows = block_rows(1);
constexpr int kPartSums = kFlowWarps * kSliceSums<kRows>;

struct Plan {
  int stage_bytes, stage_count;
  int width;          // of rows in shared memory
  int shared_shares;  // blocks of threads of the shared expert, the first ones
  Shares shared;      // their units
  Shares routed;      // the others', of one row
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
                                     int first_block, int begin, int end, int stage_bytes,
                                     Flow<Task>& flow) {
  const int tiles = w[0].tiles, k_blocks = w[0].blocks, block_bytes = w[0].block_bytes;
  const int piece = piece_blocks(w[0], stage_bytes);
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

// kMost: rows of the step at most.
template <int kMost>
__global__ void __launch_bounds__(kFlowThreads, register_blocks(3))
    few_kernel(const __grid_constant__ ExpertsUp a, const __grid_constant__ Plan plan) {
  extern __shared__ __align__(128) unsigned char shared_memory[];
  __shared__ FlowMemory<Task> flow_memory;
  __shared__ uint64_t rows_here, routed;
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
  if (thread == 0) init_barrier<1>(shared_address(&routed));
  if (shared && thread == 0) routing.blocks[0] = {-1, 0, step_rows};
  auto* const sums = reinterpret_cast<float*>(shared_memory + plan.stage_count * plan.stage_bytes);
  auto* const rows = reinterpret_cast<uint8_t*>(sums + 4 * kPartSums);
  __syncthreads();

  if (me.warp == kFlowWarps) {
    if (me.lane != 0) return;
    if (!shared) wait_barrier(shared_address(&routed), 0);
    const Shares share = shared ? plan.shared
                         : kMost == 1
                             ? plan.routed
                             : Shares::of((routing.block_count - kSharedBlocks) * w[0].tiles,
                                          static_cast<int>(gridDim.x) - plan.shared_shares);
    const int place = index - (shared ? 0 : plan.shared_shares);
    request_units(w, routing.blocks, shared ? 0 : kSharedBlocks, share.begin(place),
                  share.begin(place + 1), plan.stage_bytes, flow);
    return;
  }

  wait_for_inputs();
  start_next();  // not before: the next kernel looks at the logits before it waits
  const bool coded = is_coded(w[0].format);
  const int pitch = row_pitch(plan.width);
  if (thread == 0)
    transfer.request(rows, step_rows, coded ? pitch : 2 * plan.width, pitch, [&](int r) {
      return coded ? a.codes + r * pitch : reinterpret_cast<const uint8_t*>(a.x + r * a.x_stride);
    });
  if (!shared) {
    route_few(
        a.route, routing, index == plan.shared_shares,
        [&] {
          if (thread == 0) arrive(shared_address(&routed));
        },
        sync_flow);
    if (index == plan.shared_shares) tell(a.route, a.grouping, routing, sync_flow);
  }
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
  if (kMost == 1) point({.count = 1});
  Sums<kRows> slice = {};
  int buffer = 0;
#pragma unroll 1
  for (;;) {
    const Task task = flow.receive();
    if (task.block < 0) break;
    if (kMost > 1 && task.part == 0 && task.first == 0) point(routing.blocks[task.block]);
    multiply_blocks<false, Formats::kCommon>(format, flow.address() + me.warp * format.block_bytes,
                                             blocks_of(me.warp, task.blocks), task.first + me.warp,
                                             kFlowWarps, me, x, slice);
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
    const int writer = thread ^ buffer * kStreamThreads / 2, output = writer % 16;
    const RowBlock block = routing.blocks[task.block];
    const int n = task.tile * 16 + output;
    if (writer >= 16 * block.count || n >= w[0].n) continue;
    const int64_t row =
        shared ? block.begin + writer / 16 : routing.pairs[block.begin + writer / 16];
    const float gate = total_of<kRows>(to, output, writer / 16);
    const float up = total_of<kRows>(to + kPartSums, output, writer / 16);
    __nv_bfloat16* const out =
        shared ? a.shared_out + row * a.shared_stride : a.out + row * a.out_stride;
    out[n] = __float2bfloat16(silu(gate) * up);
  }
}

}  // namespace

bool up_few(cudaStream_t stream, const Gpu& gpu, const ExpertsUp& args) {
  const Grouping& groups = args.groups;
  const bool common = std::all_of(args.w, args.w + 2, is_common) &&
                      std::all_of(args.shared, args.shared + 2, is_common);
  const bool coded = is_coded(args.w[0].format) || is_coded(args.shared[0].format);
  if (!gpu.has_bulk_copies || args.route.logits == nullptr || groups.rows > kRows || !common ||
      (coded && !args.has_codes) || args.k % 128 != 0 || args.x_stride % 8 != 0)
    return false;
  const bool one = groups.rows == 1;
  const auto own = static_cast<int64_t>(one ? sizeof(Routing<1>) : sizeof(Routing<kRows>)) +
                   static_cast<int64_t>(sizeof(FlowMemory<Task>)) + 64;
  const int64_t fixed = 4 * kPartSums * int64_t{4} + int64_t{groups.rows} * row_pitch(args.k);
  const StagePlan stages = plan_stages(fixed + own);
  const int64_t bytes = fixed + int64_t{stages.count} * stages.bytes;
  if (bytes + own > kMaxShared) return false;

  const int most = gpu.multiprocessors * resident_blocks(gpu, bytes + own, kResidentBlocks);
  const int pairs = groups.rows * groups.top_k;
  const int units = pairs * args.w[0].tiles, shared_units = args.shared[0].tiles;
  const int grid = std::min(most, units + shared_units);
  // The shared expert's share of the bytes, when each choice is of another expert; then as many
  // blocks of threads as let none have more units than another.
  const auto cost = [](const TileStack(&w)[2]) {
    return static_cast<int64_t>(w[0].tiles) * w[0].blocks * (w[0].block_bytes + w[1].block_bytes);
  };
  const int64_t shared_cost = cost(args.shared), all = shared_cost + pairs * cost(args.w);
  const int wanted =
      std::clamp(static_cast<int>(shared_cost * grid / all), 1, std::min(shared_units, grid - 1));
  const int each = shared_units / wanted;
  const int shares = std::clamp((shared_units + each - 1) / each, 1, grid - 1);
  launch(stream, dim3(static_cast<unsigned>(grid)), dim3(kFlowThreads), static_cast<size_t>(bytes),
         one ? few_kernel<1> : few_kernel<kRows>, args,
         Plan{.stage_bytes = stages.bytes,
              .stage_count = stages.count,
              .width = args.k,
              .shared_shares = shares,
              .shared = Shares::of(shared_units, shares),
              .routed = Shares::of(units, grid - shares)});
  return true;
}

}  // namespace pewter::cuda
