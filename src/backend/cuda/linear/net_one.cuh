// The part of net.cuh that streams weights, for one row.
//
// A warp's inputs of the projections of int4 are those that it has normalised itself: it codes them
// for itself and holds them as a quad (quad.cuh). The output projection's weights have the shared
// memory of the projections', a tile at once where they can, and all that follows the row, to the
// writing of sums, is rehearsed while others mix.
#pragma once

#include "backend/cuda/linear/net.cuh"
#include "backend/cuda/linear/quad.cuh"

namespace pewter::cuda {

// Sums of a tile: of an output its slices side by side, so far from the next output's that neither
// who writes them nor who reads them meets the same banks.
constexpr int kRowSumsPitch = 12;
constexpr int kRowSums = 16 * kRowSumsPitch;
constexpr int64_t kRowSumsBytes = 2 * kRowSums * sizeof(float);
constexpr int kOutStages = 2;
constexpr int kMostHeldQuads = 2;  // of a warp, of the output projection

// A stage of weights of the projections.
struct alignas(16) RowTask {
  enum Kind : int { kPiece, kLast, kTurn };
  int kind;  // kLast: of the tile
  int format, is_half, block_bytes;
  int blocks, first;    // of k
  int column, outputs;  // of the results; those that the tile has

  static __device__ RowTask piece(bool, int, int tile, int count, int first, const TileStack& w) {
    return {first + count >= w.blocks ? kLast : kPiece,
            static_cast<int>(w.format),
            w.scale_dtype == DType::kF16 ? 1 : 0,
            w.block_bytes,
            count,
            first,
            w.out_column + tile * 16,
            w.n - tile * 16};
  }
  static __device__ RowTask turn() { return {.kind = kTurn}; }
};
static_assert(sizeof(RowTask) == 32);
// The flow of them. Its place in shared memory is known once, or it would be asked for each time.
struct RowFlow : Flow<RowTask> {
  using Memory = FlowMemory<RowTask>;
  uint32_t place;

  __device__ RowFlow(Memory& flow_memory, const void* first_stage, int stage_bytes, int stage_count)
      : Flow(flow_memory, first_stage, stage_bytes, stage_count),
        place(shared_address(&flow_memory)) {}
  __device__ void fix_place() { settle(place); }
  __device__ RowTask receive() const {
    wait_barrier(place + offsetof(Memory, full) + 8 * at, phase);
    const uint32_t task = place + offsetof(Memory, tasks) + 32 * at;
    const uint4 low = load_shared16(task), high = load_shared16(task + 16);
    const auto number = [](uint32_t word) { return static_cast<int>(word); };
    return {number(low.x),  number(low.y),  number(low.z),  number(low.w),
            number(high.x), number(high.y), number(high.z), number(high.w)};
  }
  __device__ void release(int lane) {
    __syncwarp();
    if (lane == 0) arrive(place + offsetof(Memory, empty) + 8 * at);
    next();
  }
};
struct OutTask {};
using OutWeights = Flow<OutTask, kOutStages>;

// As request_net_weights, the output projection's tiles of this block of threads.
__device__ inline void request_out_weights(const NetPlan& plan, const TileStack& w, int tile,
                                           OutWeights flow) {
#pragma unroll 1
  for (; tile < w.tiles; tile += plan.streams) {
    const uint8_t* const from = w.values + static_cast<int64_t>(tile) * w.blocks * w.block_bytes;
#pragma unroll 1
    for (int first = 0; first < w.blocks; first += plan.out_piece) {
      const int bytes = min(plan.out_piece, w.blocks - first) * w.block_bytes;
      flow.send({}, bytes);
      flow.copy(0, from + first * w.block_bytes, bytes);
      flow.next();
    }
  }
}

// A warp's sums of outputs g and g + 8, which lanes t = 3 have: to the others.
__device__ inline void share_sums(float (&sums)[2], const Lane& me) {
#pragma unroll
  for (float& sum : sums) sum = __shfl_sync(0xFFFFFFFFu, sum, me.lane | 3);
}
// … to where they are added up.
__device__ inline void keep_row_sums(const float (&sums)[2], const Lane& me, float* to) {
  if (me.t != 3) return;
  to[me.g * kRowSumsPitch + me.warp] = sums[0];
  to[(me.g + 8) * kRowSumsPitch + me.warp] = sums[1];
}
// One output: its slices in order.
__device__ inline float total_of_row(const float* sums, int output) {
  static_assert(kStreamWarps == 8);
  const auto* const from = reinterpret_cast<const float4*>(sums + output * kRowSumsPitch);
  const float4 low = from[0], high = from[1];
  return 0.0f + low.x + low.y + low.z + low.w + high.x + high.y + high.z + high.w;
}

// The row normalised: a thread has inputs 4 · thread … of each 1,024 of 1,024 · kHeld, so that a
// warp has whole groups, its own of every tile. The bits are norm_row's.
template <int kHeld>
struct NormedRow {
  float4 weight[kHeld], given[kHeld];

  static __device__ int place(int i) { return 4 * (static_cast<int>(threadIdx.x) + i * 256); }
  static __device__ void load(const float* from, float4 (&to)[kHeld]) {
#pragma unroll
    for (int i = 0; i < kHeld; ++i) to[i] = *reinterpret_cast<const float4*>(from + 1024 * i);
  }
  __device__ void norm(float epsilon, float* scratch, uint2 (&normed)[kHeld]) const {
    static_assert(kStreamThreads == 256 && kNormLanes == 512);
    float sum[2] = {};
#pragma unroll
    for (int i = 0; i < kHeld; ++i) sum[i % 2] += squares_of(given[i]);
    const float scale = norm_scale<kStreamThreads>(sum, scratch, sync_flow, [&](float total) {
      return inverse_root(divide_by<1024 * kHeld>(total) + epsilon);
    });
#pragma unroll
    for (int i = 0; i < kHeld; ++i) normed[i] = normed_four(given[i], scale, weight[i]);
  }
};

// kHeld: as in stream_net; unless it is 0, norm_x is there.
template <int kHeld>
__device__ inline void stream_net_row(const NetProducts& a, const NetPlan& plan,
                                      uint8_t* shared_memory) {
  constexpr bool kHolds = kHeld > 0;
  __shared__ FlowMemory<RowTask> flow_memory;
  __shared__ FlowMemory<OutTask, kOutStages> out_memory;
  __shared__ uint64_t ready, row_here;
  __shared__ __align__(16) unsigned char stack_memory[kStacks * sizeof(TileStack)];
  __shared__ __align__(16) float norm_scratch[2 * kNormWarps];
  auto* const stacks = reinterpret_cast<TileStack*>(stack_memory);
  const Lane me;
  const int index = static_cast<int>(blockIdx.x) - plan.mixers;
  const int thread = static_cast<int>(threadIdx.x);
  const int last = a.in.stacks, width = kHolds ? 1024 * kHeld : a.in.k;
  RowFlow flow(flow_memory, shared_memory, plan.stage_bytes, plan.stage_count);
  OutWeights out_flow(out_memory, shared_memory, plan.out_stage_bytes, plan.out_stages);
  Transfer transfer(&row_here);
  if (thread == 0) init_barrier<1>(shared_address(&ready));
  if (thread <= last) stacks[thread] = thread < last ? a.in.w[thread] : a.out.w[0];
  uint8_t* const row = shared_memory + plan.stage_count * plan.stage_bytes;
  auto* const sums = reinterpret_cast<float*>(row + plan.row_bytes);
  __syncthreads();
  if (me.warp == kFlowWarps) {
    if (me.lane != 0) return;
    request_net_weights<true>(a, plan, stacks, shared_address(&ready),
                              static_cast<Flow<RowTask>&>(flow));
    flow.drain();
    request_out_weights(plan, stacks[last], index, out_flow);
    prefetch(a.next, index, plan.streams);  // while others mix
    return;
  }

  // The projections' row, as this block's matrices want it.
  const bool coded = is_coded(stacks[index < plan.plain_shares ? 0 : last - 1].format);
  CodedQuad held;
  uint32_t number = 0;
  const auto begin = [&] {  // when the kernel before has ended
    start_next();
    if (thread == 0) arrive(shared_address(&ready));
  };
  const auto next_number = [&] { return static_cast<uint32_t>(__ldcg(a.words + kLaunch)) + 1; };
  if constexpr (kHolds) {
    NormedRow<kHeld> norm;
    norm.load(a.norm_weight + norm.place(0), norm.weight);
    wait_for_inputs();
    begin();
    norm.load(a.norm_x + norm.place(0), norm.given);
    number = next_number();
    uint2 normed[kHeld];
    norm.norm(a.epsilon, norm_scratch, normed);
    if (coded) {
      held.code<kHeld>(normed, row + me.warp * 256 * kHeld, me);
    } else {
#pragma unroll
      for (int i = 0; i < kHeld; ++i)
        *reinterpret_cast<uint2*>(row + 2 * norm.place(i)) = normed[i];
      sync_flow();
    }
  } else {
    const auto weight =
        norm_weights<kStreamThreads, 2>(a.norm_x != nullptr ? width : 0, a.norm_weight);
    wait_for_inputs();
    begin();
    number = next_number();
    if (a.norm_x != nullptr) {
      stage_normed_rows<kStreamThreads>(a.norm_x, a.norm_stride, 1, width, weight, a.epsilon, row,
                                        norm_scratch, sync_flow);
      sync_flow();
      if (coded) code_rows_in_place<kStreamThreads>(1, width, row);
      sync_flow();
    } else {
      if (thread == 0)
        request_rows(transfer, row, 1, width, coded, a.in.x, a.in.x_stride, a.in.codes);
      transfer.wait();
    }
  }

  Inputs<4, true> x;  // all columns are the row
  point_at(x, me, 1, width, coded, [&](int) { return row; });
  float own[2] = {};  // this warp's sums of outputs g and g + 8
  flow.fix_place();
#pragma unroll 1
  for (uint32_t unit = 0;;) {
    const RowTask task = flow.receive();
    if (kHolds && coded) {  // also at the turn, whatever lies there
      own[0] = own[1] = 0;
      multiply_quad<kHolds ? kHeld : kQuad>(task.is_half,
                                            flow.address() + me.warp * (kQuadBytes / kQuad),
                                            8 * kQuadBytes / kQuad, held, me, own);
    } else if (task.kind != RowTask::kTurn) {
      const BlockFormat format{static_cast<WeightFormat>(task.format),
                               task.is_half ? DType::kF16 : DType::kBF16, false, task.block_bytes};
      Sums<4> slice = {{own[0], 0, own[1], 0}};
      multiply_blocks<false, kHolds ? Formats::kPlain : Formats::kCommon>(
          format, flow.address() + me.warp * task.block_bytes, blocks_of(me.warp, task.blocks),
          task.first + me.warp, kFlowWarps, me, x, slice);
      own[0] = slice[0][0], own[1] = slice[0][2];
    }
    flow.release(me.lane);
    if (task.kind == RowTask::kTurn) break;
    if (task.kind != RowTask::kLast) continue;
    float* const to = sums + unit % 2 * kRowSums;
    keep_row_sums(own, me, to);
    own[0] = own[1] = 0;
    sync_flow();
    // Another warp each time.
    if (me.warp != static_cast<int>(unit++ % kFlowWarps)) continue;
    const int output = me.lane % 16;
    const float value = output < task.outputs ? total_of_row(to, output) : 0.0f;
    // Two outputs a word.
    const uint32_t pair = pack_bf16(value, __shfl_down_sync(0xFFFFFFFFu, value, 1));
    const int column = task.column + output;
    if (me.lane >= 16 || output >= task.outputs) continue;
    if (output % 2 == 0) send_pair(a.arrivals + column / 2, pair, number);
    static_cast<__nv_bfloat16*>(a.in.out)[column] =
        __ushort_as_bfloat16(static_cast<unsigned short>(pair));
  }

  // The output projection.
  const TileStack w = stacks[last];
  int tile = index;
  publish_writes();  // the row may be copied where the other was
  sync_flow();
  if (thread == 0) leave_net(a);
  if (tile >= w.tiles) return;
  const int out_width = padded_inputs(a.out.k);
  const bool out_coded = is_coded(w.format), adds = a.out.output == StreamOutput::kAddF32;
  const bool is_half = w.scale_dtype == DType::kF16;
  // Whoever writes results asks in time for what they join.
  const bool writes = me.warp == 0 && me.lane < 16;
  const auto before_of = [&] {
    const int n = tile * 16 + me.lane;
    return writes && n < w.n && adds ? a.out.residual[n] : 0.0f;
  };
  float before = before_of();
  // First with whatever lies where the row will be, while others mix, so that the instructions are
  // here when they are done. Then the same stage once more.
  bool rehearses = true;
  uint32_t unit = 0;
  own[0] = own[1] = 0;
  const auto finish_tile = [&] {
    float* const to = sums + unit++ % 2 * kRowSums;
    keep_row_sums(own, me, to);
    own[0] = own[1] = 0;
    sync_flow();
    if (const int n = tile * 16 + me.lane; writes && n < w.n) {
      const float value = total_of_row(to, me.lane);
      float* const nowhere = norm_scratch + me.lane;
      *(rehearses ? nowhere : static_cast<float*>(a.out.out) + n) = value;
      if (adds) *(rehearses ? nowhere : a.out.residual + n) = before + value;
    }
    if (rehearses) return;
    tile += plan.streams;
    if (tile < w.tiles) before = before_of();
  };
  const auto wait_for_row = [&] {
    if (me.warp == 0) wait_for_numbers(a.mixed, plan.mixers, number);
  };

  // A few whole quads of the row need not be in shared memory.
  const int quads = w.blocks / (8 * kQuad);
  if (kHolds && out_coded && plan.out_piece == w.blocks && quads * 8 * kQuad == w.blocks &&
      quads <= kMostHeldQuads) {
#pragma unroll 1
    while (tile < w.tiles) {
      LoadedQuad quad[kMostHeldQuads];
#pragma unroll
      for (int i = 0; i < kMostHeldQuads; ++i)
        if (i < quads) quad[i].load(a.out.codes, out_width, me.warp + 8 * kQuad * i, 8, me);
      out_flow.receive();
      const uint32_t at = out_flow.address() + me.warp * (kQuadBytes / kQuad);
#pragma unroll
      for (int i = 0; i < kMostHeldQuads; ++i)
        if (i < quads) {
          if (i > 0) share_sums(own, me);
          multiply_quad<kQuad>(is_half, at + i * 8 * kQuadBytes, 8 * kQuadBytes / kQuad, quad[i],
                               me, own);
        }
      if (!rehearses) out_flow.release();
      finish_tile();
      if (rehearses) {
        rehearses = false;
        wait_for_row();
        sync_flow();
      }
    }
    return;
  }

  const BlockFormat format = format_of(w);
  point_at(x, me, 1, out_width, out_coded, [&](int) { return row; });
#pragma unroll 1
  for (int first = 0; tile < w.tiles;) {
    out_flow.receive();
    const int blocks = min(plan.out_piece, w.blocks - first);
    uint32_t at = out_flow.address() + me.warp * w.block_bytes;
    int left = blocks_of(me.warp, blocks), block = first + me.warp;
    if (out_coded)
#pragma unroll 1
      for (; left >= kQuad; left -= kQuad, block += 8 * kQuad, at += 8 * kQuadBytes) {
        LoadedQuad quad;
        quad.load(shared_address(row), out_width, block, 8, me);
        share_sums(own, me);
        multiply_quad<kQuad>(is_half, at, 8 * kQuadBytes / kQuad, quad, me, own);
      }
    if (left > 0) {  // what no quad is made of
      share_sums(own, me);
      Sums<4> slice = {{own[0], 0, own[1], 0}};
      multiply_blocks<false, Formats::kCommon>(format, at, left, block, kFlowWarps, me, x, slice);
      own[0] = slice[0][0], own[1] = slice[0][2];
    }
    if (!rehearses) {
      out_flow.release();
      first += blocks;
      if (first < w.blocks) continue;
      first = 0;
    }
    finish_tile();
    if (rehearses) {
      rehearses = false;
      wait_for_row();
      if (thread == 0) {
        transfer.see_writes();
        request_rows(transfer, row, 1, out_width, out_coded, a.out.x, a.out.x_stride, a.out.codes);
      }
      transfer.wait();
    }
  }
}

}  // namespace pewter::cuda
