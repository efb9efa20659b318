// The delta block in one kernel, all of whose blocks of threads are there from the start to the
// end. Some have a value head each (head.cuh), the others stream weights: first the projections'
// units, whichever is next, then those of the output projection, whose weights come while the heads
// are at work. Heads take the projections' results as they arrive (arrival.cuh); the output
// projection waits until all heads are done, by a count in memory (grid_sync.cuh), which costs a
// third of a kernel's end and the next one's start.
//
// Split of work, order of sums, precision: as in linear/stream.cu and delta/decode.cu, whose bits
// these are. Bytes: weights and state once. Limits: memory, and the latency of the two waits: 68 %
// of copy bandwidth for one row of the 122B on an H200.

#include <algorithm>

#include "backend/cuda/common/grid_sync.cuh"
#include "backend/cuda/common/prefetch.cuh"
#include "backend/cuda/delta/head.cuh"
#include "backend/cuda/delta/net.h"
#include "backend/cuda/linear/flow.cuh"
#include "backend/cuda/linear/held.cuh"
#include "backend/cuda/linear/stream_unit.cuh"

namespace pewter::cuda {
namespace {

constexpr int kNormedRows = 1;
constexpr int kStacks = StreamArgs::kMaxStacks + 1;
constexpr int64_t kOwnBytes = 1024;  // of shared memory besides what a launch shares out
enum Word { kClaims, kMixed, kLeft, kLaunch };
static_assert(kLaunch + 1 == kNetWords);

struct Plan {
  int heads, streams;             // blocks of threads: the first have heads, the others stream
  int plain_shares, plain_units;  // as in linear/stream.cu
  int units;                      // of the projections
  int fixed;                      // of them a block of threads has from the start
  int stage_bytes, stage_count;
  int pieces[kStacks];  // blocks of each matrix's tiles that a stage has room for
  int row_bytes;        // for rows in shared memory
  int row_capacity;     // of a head
};

// What a stage of weights is for, or what is to be done between two.
struct Task {
  enum Kind : int { kProject, kTurn, kOut, kEnd };
  int kind;
  int stack, tile;
  int blocks, first;  // of k
  bool ends;          // the tile
};
using Weights = Flow<Task>;

// Requests weights, by one thread: units of the projections, whichever is next, then of the output
// projection. ready: a barrier, complete when the kernel before has ended, which may have used the
// counts.
__device__ inline void request_all(const DeltaNet& a, const Plan& plan, const TileStack* stacks,
                                   uint32_t ready, Weights flow) {
  const int index = static_cast<int>(blockIdx.x) - plan.heads, last = a.in.stacks;
  const bool designated = index < plan.plain_shares;
  const int shares = designated ? plan.plain_shares : plan.streams - plan.plain_shares;
  const int begin = designated ? 0 : plan.plain_units;
  const int end = designated ? plan.plain_units : plan.units;
  const int fixed = designated ? end : plan.fixed;
  int unit = begin + index - (designated ? 0 : plan.plain_shares), claim = 0;
  int out_tile = index;
  bool projects = true;
#pragma unroll 1
  for (int opened = 0;; ++opened) {
    int stack = last, tile = out_tile;
    if (projects) {
      if (opened == fixed) wait_barrier(ready, 0);
      if (opened >= fixed) {
        if (opened == fixed) claim = atomicAdd(a.words + kClaims, 1);
        unit = begin + shares * fixed + claim;
      }
      if (unit >= end) {
        projects = false;
        flow.send({.kind = Task::kTurn}, 0);
        flow.next();
      } else {
        if (opened >= fixed) claim = atomicAdd(a.words + kClaims, 1);  // used after this unit
        for (stack = 0, tile = unit; tile >= stacks[stack].tiles; ++stack)
          tile -= stacks[stack].tiles;
        unit += shares;
      }
    }
    if (!projects) {
      if (out_tile >= stacks[last].tiles) break;
      out_tile += plan.streams;
    }
    const TileStack& w = stacks[stack];
    const int piece = plan.pieces[stack], blocks = w.blocks;
    const uint8_t* const from = w.values + static_cast<int64_t>(tile) * blocks * w.block_bytes;
#pragma unroll 1
    for (int first = 0; first < blocks; first += piece) {
      const int count = min(piece, blocks - first), bytes = count * w.block_bytes;
      flow.send({projects ? Task::kProject : Task::kOut, stack, tile, count, first,
                 first + piece >= blocks},
                bytes);
      flow.copy(0, from + first * w.block_bytes, bytes);
      flow.next();
    }
  }
  flow.send({.kind = Task::kEnd}, 0);
  prefetch(a.next, index, plan.streams);  // while the heads are at work
}

// kHeld: blocks of k of a warp, whose inputs are held in registers for projections of int4; 0: not
// so.
template <int kRows, bool kSharedOut, int kHeld>
__device__ inline void stream_role(const DeltaNet& a, const Plan& plan, uint8_t* shared_memory) {
  __shared__ FlowMemory<Task> flow_memory;
  __shared__ uint64_t ready, rows_here;
  __shared__ __align__(16) unsigned char stack_memory[kStacks * sizeof(TileStack)];
  __shared__ float norm_scratch[2 * kNormWarps];
  auto* const stacks = reinterpret_cast<TileStack*>(stack_memory);
  const Lane me;
  const int index = static_cast<int>(blockIdx.x) - plan.heads;
  const int thread = static_cast<int>(threadIdx.x);
  const int last = a.in.stacks, m = a.in.rows, width = padded_inputs(a.in.k);
  Weights flow(flow_memory, shared_memory, plan.stage_bytes, plan.stage_count);
  Transfer transfer(&rows_here);
  if (thread == 0) init_barrier<1>(shared_address(&ready));
  if (thread <= last) stacks[thread] = thread < last ? a.in.w[thread] : a.out.w[0];
  uint8_t* const rows = shared_memory + plan.stage_count * plan.stage_bytes;
  auto* const sums = reinterpret_cast<float*>(rows + plan.row_bytes);
  __syncthreads();
  if (me.warp == kFlowWarps) {
    if (me.lane == 0) request_all(a, plan, stacks, shared_address(&ready), flow);
    return;
  }

  // The projections' rows, as this block's matrices want them.
  const bool coded = is_coded(stacks[index < plan.plain_shares ? 0 : last - 1].format);
  const auto norm_weight =
      norm_weights<kStreamThreads, 2>(a.norm_x != nullptr ? a.in.k : 0, a.norm_weight);
  wait_for_inputs();
  start_next();
  if (thread == 0) arrive(shared_address(&ready));
  const auto number = static_cast<uint32_t>(__ldcg(a.words + kLaunch)) + 1;
  if (a.norm_x != nullptr) {
    stage_normed_rows<kStreamThreads>(a.norm_x, a.norm_stride, m, a.in.k, norm_weight, a.epsilon,
                                      rows, norm_scratch, sync_flow);
    sync_flow();
    if (coded) code_rows_in_place<kStreamThreads>(m, width, rows);
    publish_writes();  // the output projection's rows are copied there
    sync_flow();
  } else {
    if (thread == 0)
      request_rows(transfer, rows, m, width, coded, a.in.x, a.in.x_stride, a.in.codes);
    transfer.wait();
  }

  Inputs<kRows, true> x;
  Inputs<kRows, false> far;  // rows of the output projection that shared memory has no room for
  point_at(x, me, m, width, coded, [&](int r) { return rows + r * row_pitch(width); });
  HeldRows<kHeld> held;
  if constexpr (kHeld > 0)
    if (coded) held.load(x, me);
  Sums<kRows> slice = {};
  float before = 0;
  // A unit's results are written by other warps each time.
  const auto writer_of = [&](int unit) {
    return (static_cast<uint32_t>(thread) - unit % kFlowWarps * kWarp) % kStreamThreads;
  };
  bool rehearses = false;
#pragma unroll 1
  for (int unit = 0;;) {
    const Task task = flow.receive();
    if (task.kind == Task::kTurn) {
      flow.release();
      sync_flow();
      const bool goes_on = index < stacks[last].tiles;
      if (!goes_on) continue;
      // Whoever writes the first tile's results asks in time for what they join.
      if (a.out.output == StreamOutput::kAddF32) {
        const uint32_t writer = writer_of(unit);
        const int row = static_cast<int>(writer / 16),
                  n = index * 16 + static_cast<int>(writer % 16);
        if (row < m && n < stacks[last].n) before = a.out.residual[row * a.out.residual_stride + n];
      }
      const int out_width = padded_inputs(a.out.k);
      const bool out_coded = is_coded(stacks[last].format);
      if constexpr (kSharedOut) {
        point_at(x, me, m, out_width, out_coded,
                 [&](int r) { return rows + r * row_pitch(out_width); });
        rehearses = true;
      } else {
        if (thread == 0) wait_for(a.words + kMixed, a.mix.value_heads);
        sync_flow();
        far.k_end = readable_inputs(a.out.x, a.out.x_stride, a.out.k);
        point_at(far, me, m, out_width, out_coded, [&](int r) {
          return out_coded ? a.out.codes + static_cast<int64_t>(r) * row_pitch(out_width)
                           : reinterpret_cast<const uint8_t*>(a.out.x + r * a.out.x_stride);
        });
      }
      continue;
    }
    if (task.kind == Task::kEnd) break;

    const TileStack& w = stacks[task.stack];
    const BlockFormat format = format_of(w);
    const uint32_t at = flow.address() + me.warp * format.block_bytes;
    const int blocks = blocks_of(me.warp, task.blocks), first = task.first + me.warp;
    bool done = false;
    if constexpr (kHeld > 0)
      if (coded && task.kind == Task::kProject) {
        multiply_held(format, at, me, held, slice);
        done = true;
      }
    if (done)
      ;
    else if (kSharedOut || task.kind == Task::kProject)
      multiply_blocks<false, Formats::kCommon>(format, at, blocks, first, kFlowWarps, me, x, slice);
    else
      multiply_blocks<false, Formats::kCommon>(format, at, blocks, first, kFlowWarps, me, far,
                                               slice);
    if (kSharedOut && rehearses) {
      // That was with whatever lay where the rows will be: while the heads are at work, so that the
      // instructions are here when they are done. The same stage follows once more.
      rehearses = false;
#pragma unroll
      for (auto& operand : slice)
        for (float& sum : operand) sum = 0;
      sync_flow();
      if (thread == 0) {
        wait_for(a.words + kMixed, a.mix.value_heads);
        transfer.see_writes();
        request_rows(transfer, rows, m, padded_inputs(a.out.k), is_coded(w.format), a.out.x,
                     a.out.x_stride, a.out.codes);
      }
      transfer.wait();
      continue;
    }
    flow.release();
    if (!task.ends) continue;
    float* const to = sums + unit % 2 * kStreamWarps * kSliceSums<kRows>;
    keep_sums<kRows>(slice, me, to + me.warp * kSliceSums<kRows>);
#pragma unroll
    for (auto& operand : slice)
      for (float& sum : operand) sum = 0;
    sync_flow();
    const uint32_t writer = writer_of(unit++);
    const int row = static_cast<int>(writer / 16);
    const int n = task.tile * 16 + static_cast<int>(writer % 16);
    const bool mine = row < m && n < w.n;
    const float value = mine ? total_of<kRows>(to, static_cast<int>(writer % 16), row) : 0.0f;
    if (task.kind == Task::kProject) {
      // Two outputs a word.
      const uint32_t own = __bfloat16_as_ushort(__float2bfloat16(value));
      const uint32_t pair = own | __shfl_down_sync(0xFFFFFFFFu, own, 1) << 16;
      if (mine)
        static_cast<__nv_bfloat16*>(a.in.out)[row * a.in.out_stride + w.out_column + n] =
            __ushort_as_bfloat16(static_cast<unsigned short>(own));
      if (mine && n % 2 == 0)
        send_pair(a.arrivals + row * a.arrival_pairs + (w.out_column + n) / 2, pair, number);
    } else if (mine) {
      static_cast<float*>(a.out.out)[row * a.out.out_stride + n] = value;
      if (a.out.output == StreamOutput::kAddF32)
        a.out.residual[row * a.out.residual_stride + n] =
            (task.tile == index ? before : a.out.residual[row * a.out.residual_stride + n]) + value;
    }
  }
}

template <int kRows, bool kSharedOut, int kHeld>
__global__ void __launch_bounds__(kFlowThreads, register_blocks(kResidentBlocks))
    net_kernel(const __grid_constant__ DeltaNet a, const __grid_constant__ Plan plan) {
  extern __shared__ __align__(128) unsigned char shared_memory[];
  const int index = static_cast<int>(blockIdx.x);
  if (index >= plan.heads) {
    stream_role<kRows, kSharedOut, kHeld>(a, plan, shared_memory);
  } else {
    __shared__ uint64_t state_here;
    auto* const state = reinterpret_cast<float*>(shared_memory);
    float* const rows = state + SharedHeadState::kBytes / 4;
    auto& memory =
        *reinterpret_cast<ArrivingHeadMemory*>(rows + plan.row_capacity * HeadRows::kFloats);
    if (threadIdx.x >= kStreamThreads) {  // counts, which takes a microsecond, beside the others
      wait_as_ninth();
      if (threadIdx.x == kStreamThreads) count_reader(a.mix, 0, index / a.mix.sharers, memory);
      __syncwarp();
      pass_as_ninth();
      return;
    }
    struct Readers {
      __device__ void count(HeadMemory&) const { pass_ninth(); }
      __device__ void known() const { wait_for_ninth(); }
    };
    decode_head<true, kStreamThreads>(
        a.mix, index, 0, plan.row_capacity, rows, memory,
        [&](int slot) {
          return SharedHeadState(a.mix, slot, index, state, &state_here, sync_flow);
        },
        [&](int64_t) {
          wait_for_inputs();
          start_next();
          return Arrivals{a.arrivals, a.arrival_pairs,
                          static_cast<uint32_t>(__ldcg(a.words + kLaunch)) + 1};
        },
        Readers{},
        [&] {
          sync_flow();
          if (threadIdx.x == 0) arrive_at(a.words + kMixed);
        },
        sync_flow);
  }
  if (threadIdx.x == 0 && leave(a.words, kLaunch, kLeft, static_cast<int>(gridDim.x)))
    ++a.words[kLaunch];
}

// Rows of the output projection are in shared memory where that leaves room for the weights.
bool shares_out(const DeltaNet& net) {
  return int64_t{net.in.rows} * row_pitch(padded_inputs(net.out.k)) <= kMaxShared / 2;
}
int64_t row_bytes(const DeltaNet& net) {
  return int64_t{net.in.rows} * std::max(row_pitch(padded_inputs(net.in.k)),
                                         shares_out(net) ? row_pitch(padded_inputs(net.out.k)) : 0);
}

int row_capacity(const DeltaNet& net) { return std::max(net.mix.tape_rows, net.mix.most_rows); }
int64_t head_bytes(const DeltaNet& net) {
  return SharedHeadState::kBytes + row_capacity(net) * HeadRows::kFloats * 4 +
         int64_t{sizeof(ArrivingHeadMemory)};
}

using Kernel = void (*)(DeltaNet, Plan);
Kernel kernel_for(const DeltaNet& net, int held) {
  if (net.in.rows > kHeldRows)
    return shares_out(net) ? net_kernel<8, true, 0> : net_kernel<8, false, 0>;
  if (!shares_out(net))
    return held == 3   ? net_kernel<4, false, 3>
           : held == 2 ? net_kernel<4, false, 2>
                       : net_kernel<4, false, 0>;
  return held == 3   ? net_kernel<4, true, 3>
         : held == 2 ? net_kernel<4, true, 2>
                     : net_kernel<4, true, 0>;
}

struct Launch {
  Plan plan{};
  int grid = 0;
  int64_t bytes = 0;
  int held = 0;
};
Launch plan_for(const Gpu& gpu, const DeltaNet& net) {
  Launch l;
  Plan& plan = l.plan;
  const int columns = net.in.rows <= 4 ? 4 : 8;
  plan.row_bytes = static_cast<int>(row_bytes(net));
  const int64_t fixed = plan.row_bytes + 2 * kStreamWarps * 16 * columns * int64_t{4};
  const int64_t room = static_cast<int64_t>(kMostSharedBytes) - kOwnBytes - fixed;
  // Stages that hold a tile of the projections each, or else the most of them: eight blocks of
  // every matrix at least.
  const TileStack& w = net.in.w[net.in.stacks - 1];
  int least = kStreamWarps * net.out.w[0].block_bytes;
  for (int i = 0; i < net.in.stacks; ++i)
    least = std::max(least, kStreamWarps * net.in.w[i].block_bytes);
  const int tile = w.blocks * w.block_bytes;
  int64_t most = 0;
  for (const int bytes :
       {tile, 32 * (kMostBlockBytes / 2), 24 * (kMostBlockBytes / 2), 16 * (kMostBlockBytes / 2)}) {
    const int count = static_cast<int>(std::min<int64_t>(room / bytes, kMostFlowStages));
    const int64_t held = int64_t{count} * piece_blocks(w, bytes) * w.block_bytes;
    if (bytes < least || count < kLeastStages || held <= most) continue;
    most = held, plan.stage_bytes = bytes, plan.stage_count = count;
    if (bytes == tile && count > kLeastStages) break;
  }
  // Tiles of int4 that a stage has whole; all projections are as wide.
  l.held = held_blocks(w.blocks);
  for (int i = 0; i <= net.in.stacks && plan.stage_bytes > 0; ++i) {
    const TileStack& m = i < net.in.stacks ? net.in.w[i] : net.out.w[0];
    plan.pieces[i] = piece_blocks(m, plan.stage_bytes);
    if (i < net.in.stacks && is_coded(m.format) && plan.pieces[i] < m.blocks) l.held = 0;
  }
  plan.row_capacity = row_capacity(net);
  l.bytes =
      std::max<int64_t>(fixed + int64_t{plan.stage_count} * plan.stage_bytes, head_bytes(net));
  l.grid = gpu.multiprocessors * kResidentBlocks;
  plan.heads = net.mix.value_heads;
  plan.streams = l.grid - plan.heads;
  const Split split = split_for(net.in, plan.streams);
  plan.plain_shares = split.plain_shares;
  plan.plain_units = split.plain_units;
  plan.units = split.units;
  const int coded_shares = plan.streams - plan.plain_shares;
  plan.fixed = std::clamp((split.units - split.plain_units) / coded_shares - 1, 1, 3);
  return l;
}

// Whether the kernel has room, all of its blocks of threads at once: they wait for one another.
bool fits(const Gpu& gpu, const DeltaNet& net) {
  const Launch l = plan_for(gpu, net);
  if (l.plan.stage_count == 0 || l.bytes + kOwnBytes > static_cast<int64_t>(kMostSharedBytes))
    return false;
  const Kernel kernel = kernel_for(net, l.held);
  set_kernel_limits(reinterpret_cast<const void*>(kernel), static_cast<size_t>(l.bytes));
  int resident = 0;
  CUDA_CHECK(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&resident, kernel, kFlowThreads,
                                                           static_cast<size_t>(l.bytes)));
  return resident >= kResidentBlocks;
}

}  // namespace

bool can_fuse(const Gpu& gpu, const DeltaNet& given) {
  DeltaNet net = given;
  sort_stacks(net.in);
  const int64_t taken = static_cast<int64_t>(kMostSharedBytes) + kOwnShared;
  const auto common = [](const StreamArgs& args) {
    return std::all_of(args.w, args.w + args.stacks,
                       [](const TileStack& w) { return is_common(w); });
  };
  return gpu.has_bulk_copies && common(net.in) && common(net.out) &&
         gpu.shared_bytes >= kResidentBlocks * taken && net.mix.sequences == 1 &&
         net.in.rows <= kMostNetRows && can_code(net.mix) && net.in.k % 128 == 0 &&
         net.out.k % 128 == 0 && net.in.x_stride % 8 == 0 && net.out.x_stride % 8 == 0 &&
         net.in.k <= kWidestQuadRow && net.mix.value_heads % 2 == 0 &&
         net.mix.value_heads * 3 <= gpu.multiprocessors * kResidentBlocks && fits(gpu, net);
}

bool can_norm(const DeltaNet& net, int64_t x_stride) {
  return net.in.rows <= kNormedRows && net.in.k <= kFusedNormWidth && net.in.k % 128 == 0 &&
         is_quad_row(net.in.k, x_stride, 4);
}

void delta_net(cudaStream_t stream, const Gpu& gpu, const DeltaNet& net) {
  DeltaNet sorted = net;
  sort_stacks(sorted.in);
  const Launch l = plan_for(gpu, sorted);
  launch(stream, dim3(static_cast<unsigned>(l.grid)), dim3(kFlowThreads),
         static_cast<size_t>(l.bytes), kernel_for(sorted, l.held), sorted, l.plan);
}

}  // namespace pewter::cuda
