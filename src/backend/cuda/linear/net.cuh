// The products of a token mixer's block in one kernel, all of whose blocks of threads are there
// from the start to the end. Some mix (delta/net.cu, attention/net.cu), the others stream weights:
// first the projections' units, whichever is next, then those of the output projection, whose
// weights come while others mix. Those take the projections' results as they arrive (arrival.cuh);
// the output projection waits until all have mixed, by a count in memory (grid_sync.cuh) or, where
// net_one.cuh has the one row, by the number of the launch that each leaves there. Either costs a
// third of a kernel's end and the next one's start.
//
// Split of work, order of sums, precision: as in linear/stream.cu, whose bits these are.
#pragma once

#include <algorithm>

#include "backend/cuda/common/arrival.cuh"
#include "backend/cuda/common/grid_sync.cuh"
#include "backend/cuda/common/prefetch.cuh"
#include "backend/cuda/linear/flow.cuh"
#include "backend/cuda/linear/held.cuh"
#include "backend/cuda/linear/net.h"
#include "backend/cuda/linear/stream_unit.cuh"

namespace pewter::cuda {

constexpr int kStacks = StreamArgs::kMaxStacks + 1;
constexpr int64_t kOwnBytes = 1024;  // of shared memory besides what a launch shares out

struct NetPlan {
  int mixers, streams;            // blocks of threads: the first mix, the others stream
  int plain_shares, plain_units;  // as in linear/stream.cu
  int units;                      // of the projections
  int fixed;                      // of them a block of threads has from the start
  int stage_bytes, stage_count;
  int pieces[kStacks];  // blocks of each matrix's tiles that a stage has room for
  int out_piece, out_stage_bytes, out_stages;  // of the output projection, where it has its own
  int row_bytes;                               // for rows in shared memory
  bool numbered;     // net_one.cuh has the row: who mixes tells of it by a number, not by a count
  int row_capacity;  // of a mixer
};

// What a stage of weights is for, or what is to be done between two.
struct NetTask {
  enum Kind : int { kProject, kTurn, kOut, kEnd };
  int kind;
  int stack, tile;
  int blocks, first;  // of k
  bool ends;          // the tile

  static __device__ NetTask piece(bool projects, int stack, int tile, int count, int first,
                                  const TileStack& w) {
    return {projects ? kProject : kOut, stack, tile, count, first, first + count >= w.blocks};
  }
  static __device__ NetTask turn() { return {.kind = kTurn}; }
};

// Requests weights, by one thread: units of the projections, whichever is next, and unless
// kOnlyProjects those of the output projection behind them. ready: a barrier, complete when the
// kernel before has ended, which may have used the counts.
template <bool kOnlyProjects, typename Task>
__device__ inline void request_net_weights(const NetProducts& a, const NetPlan& plan,
                                           const TileStack* stacks, uint32_t ready,
                                           Flow<Task>& flow) {
  const int index = static_cast<int>(blockIdx.x) - plan.mixers, last = a.in.stacks;
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
        flow.send(Task::turn(), 0);
        flow.next();
        if constexpr (kOnlyProjects) return;
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
      flow.send(Task::piece(projects, stack, tile, count, first, w), bytes);
      flow.copy(0, from + first * w.block_bytes, bytes);
      flow.next();
    }
  }
}

// By one thread of each block of threads, when the block has used the counts: not at its end, for
// the kernel's end would wait for the count's way.
__device__ inline void leave_net(const NetProducts& a) {
  if (leave(a.words, kLaunch, kLeft, static_cast<int>(gridDim.x))) ++a.words[kLaunch];
}

// Of rows that net_one.cuh does not have. kHeld: blocks of k of a warp, whose inputs are held in
// registers for projections of int4; 0: not so.
template <int kRows, bool kSharedOut, int kHeld>
__device__ inline void stream_net(const NetProducts& a, const NetPlan& plan,
                                  uint8_t* shared_memory) {
  __shared__ FlowMemory<NetTask> flow_memory;
  __shared__ uint64_t ready, rows_here;
  __shared__ __align__(16) unsigned char stack_memory[kStacks * sizeof(TileStack)];
  __shared__ float norm_scratch[2 * kNormWarps];
  auto* const stacks = reinterpret_cast<TileStack*>(stack_memory);
  const Lane me;
  const int index = static_cast<int>(blockIdx.x) - plan.mixers;
  const int thread = static_cast<int>(threadIdx.x);
  const int last = a.in.stacks, m = a.in.rows, width = padded_inputs(a.in.k);
  Flow<NetTask> flow(flow_memory, shared_memory, plan.stage_bytes, plan.stage_count);
  Transfer transfer(&rows_here);
  if (thread == 0) init_barrier<1>(shared_address(&ready));
  if (thread <= last) stacks[thread] = thread < last ? a.in.w[thread] : a.out.w[0];
  uint8_t* const rows = shared_memory + plan.stage_count * plan.stage_bytes;
  auto* const sums = reinterpret_cast<float*>(rows + plan.row_bytes);
  __syncthreads();
  if (me.warp == kFlowWarps) {
    if (me.lane != 0) return;
    request_net_weights<false>(a, plan, stacks, shared_address(&ready), flow);
    flow.send({.kind = NetTask::kEnd}, 0);
    prefetch(a.next, index, plan.streams);  // while others mix
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
    const NetTask task = flow.receive();
    if (task.kind == NetTask::kTurn) {
      flow.release();
      sync_flow();
      const bool goes_on = index < stacks[last].tiles;
      if (!goes_on) {
        if (thread == 0) leave_net(a);
        continue;
      }
      // Whoever writes the first tile's results asks in time for what they join.
      if (a.out.output == StreamOutput::kAddF32) {
        const uint32_t writer = writer_of(unit);
        const int row = static_cast<int>(writer / 16),
                  n = index * 16 + static_cast<int>(writer % 16);
        if (row < m && n < stacks[last].n) before = a.out.residual[row * a.out.residual_stride + n];
      }
      if constexpr (kSharedOut) {
        const int out_width = padded_inputs(a.out.k);
        point_at(x, me, m, out_width, is_coded(stacks[last].format),
                 [&](int r) { return rows + r * row_pitch(out_width); });
        rehearses = true;
      } else {
        if (thread == 0) {
          wait_for(a.words + kMixed, plan.mixers);
          leave_net(a);
        }
        sync_flow();
      }
      continue;
    }
    if (task.kind == NetTask::kEnd) break;

    const TileStack& w = stacks[task.stack];
    const BlockFormat format = format_of(w);
    const uint32_t at = flow.address() + me.warp * format.block_bytes;
    const int blocks = blocks_of(me.warp, task.blocks), first = task.first + me.warp;
    bool done = false;
    if constexpr (kHeld > 0)
      if (coded && task.kind == NetTask::kProject) {
        multiply_held(format, at, me, held, slice);
        done = true;
      }
    if (done)
      ;
    else if (kSharedOut || task.kind == NetTask::kProject)
      multiply_blocks<false, Formats::kCommon>(format, at, blocks, first, kFlowWarps, me, x, slice);
    else {
      // Rows that shared memory has no room for. Where they are is found each time: there are no
      // registers to keep it.
      const int out_width = padded_inputs(a.out.k);
      Inputs<kRows, false> far;
      far.k_end = readable_inputs(a.out.x, a.out.x_stride, a.out.k);
      point_at(far, me, m, out_width, is_coded(w.format), [&](int r) {
        return is_coded(w.format) ? a.out.codes + static_cast<int64_t>(r) * row_pitch(out_width)
                                  : reinterpret_cast<const uint8_t*>(a.out.x + r * a.out.x_stride);
      });
      multiply_blocks<false, Formats::kCommon>(format, at, blocks, first, kFlowWarps, me, far,
                                               slice);
    }
    if (kSharedOut && rehearses) {
      // That was with whatever lay where the rows will be: while others mix, so that the
      // instructions are here when they are done. The same stage follows once more.
      rehearses = false;
#pragma unroll
      for (auto& operand : slice)
        for (float& sum : operand) sum = 0;
      sync_flow();
      if (thread == 0) {
        wait_for(a.words + kMixed, plan.mixers);
        transfer.see_writes();
        request_rows(transfer, rows, m, padded_inputs(a.out.k), is_coded(w.format), a.out.x,
                     a.out.x_stride, a.out.codes);
        leave_net(a);
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
    if (task.kind == NetTask::kProject) {
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

struct NetLaunch {
  NetPlan plan{};
  int grid = 0;
  int64_t bytes = 0;  // of shared memory
  int held = 0;
};

// `mixers` blocks of threads mix, with `mixer_bytes` of shared memory each. The products'
// matrices are sorted (stream_unit.cuh).
NetLaunch plan_net(const Gpu& gpu, const NetProducts& net, int mixers, int64_t mixer_bytes,
                   bool one);
// Whether the GPU and the products are such as these kernels are made for.
bool can_stream_net(const Gpu& gpu, const NetProducts& net);
// Whether rows of the output projection are in shared memory, which leaves room for the weights.
bool shares_out(const NetProducts& net);
// Whether the products are of one row for which net_one.cuh is made.
bool streams_one(const NetProducts& net);
// Whether a kernel has room, all of its blocks of threads at once: they wait for one another.
bool net_fits(const NetLaunch& launch, const void* kernel);

}  // namespace pewter::cuda
