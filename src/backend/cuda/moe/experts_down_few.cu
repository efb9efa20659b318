// Down matrices of the experts, and the sum over a row's experts, for so few rows that all of them
// fit into shared memory. experts_down.cu is the plain twin; one row of int4 experts that is told
// of its choice has a shorter kernel, experts_down_one.cu.
//
// Split of work: a block of threads takes a tile of 16 outputs; eight of its warps share the routed
// experts met, a warp all of k, so that nothing is added up between warps before the experts'
// results are; four share the shared expert, whose blocks cost more, by blocks of k. Rows are coded
// by the warp that multiplies them, some at a time. A warp is told of its expert by the up products
// (RouteWords), or its block of threads routes for itself; either way its first weights are on the
// way before those products end.
// Bytes: the matrices of the experts met, from memory once. Precision and order of sums: as in the
// twin, where a slice of k is one block. Limits: the latency from the rows to the sums.

#include <algorithm>

#include "backend/cuda/linear/parts.cuh"
#include "backend/cuda/moe/experts_down_few.h"
#include "backend/cuda/moe/routing.cuh"

namespace pewter::cuda {
namespace {

constexpr int kWarps = kRoutedWarps + kSharedWarps, kThreads = kWarps * kWarp;
constexpr int kBoundThreads = kBoundWarps * kWarp;
constexpr int kMostBlocks = 8;  // of a tile
constexpr int kMostInputs = 128 * kMostBlocks;
constexpr int kFewStages = 3;
constexpr int kRows = block_rows(1);

// What warps of one kind have to do with, and where that lies in shared memory.
struct Role {
  int blocks, each;        // of k: a warp's share, and what a stage has room for
  int width;               // inputs of a row of them
  int chunk, stage_bytes;  // bytes of a stage that are used; from one to the next
  int ring, rows;          // the first warp's
};
struct Plan {
  Role routed, shared;
  int stages;
  int together;  // rows of a block beside each other; more take turns
  int results;   // in shared memory: [pairs][16], then the shared expert's [rows][blocks][16]
};

// Brings `count` rows into shared memory, coded or as they are, zeros behind their k inputs. By a
// warp; k is a multiple of eight, rows are aligned to sixteen bytes. All loads of a row are on
// their way before the first is used.
template <typename Source>
__device__ inline void bring_rows(int count, int k, int width, bool coded, const Source& source,
                                  uint8_t* rows) {
  constexpr int kGroups = kMostInputs / 128, kTogether = 4;
  const int lane = static_cast<int>(threadIdx.x % kWarp), groups = width / 128;
#pragma unroll 1
  for (int r = 0; r < count; ++r) {
    const __nv_bfloat16* const from = source(r) + 4 * lane;
    uint2 four[kGroups];
#pragma unroll
    for (int i = 0; i < kGroups; ++i)
      four[i] = i * 128 + 4 * lane < k ? *reinterpret_cast<const uint2*>(from + i * 128) : uint2{};
    uint8_t* const to = rows + r * row_pitch(width);
#pragma unroll 1
    for (int first = 0; first < groups; first += kTogether) {
      uint2 now[kTogether];
#pragma unroll
      for (int i = 0; i < kTogether; ++i) now[i] = four[i];
#pragma unroll
      for (int i = 0; i + kTogether < kGroups; ++i) four[i] = four[i + kTogether];
      if (coded) {
        code_groups(now, first, 1, groups, width, to);
        continue;
      }
#pragma unroll
      for (int i = 0; i < kTogether; ++i)
        if (first + i < groups)
          *reinterpret_cast<uint2*>(to + (first + i) * 256 + 8 * lane) = now[i];
    }
  }
}

// A warp's work, one after the other: `together` rows of an entry of the table, and for the shared
// expert's, which come first, a part of k. kOnce: it is one row of one entry.
template <bool kOnce>
struct Walk {
  int entry, row = 0;
  __device__ bool next(const RowBlock* blocks, int entries, int step, int together) {  // false: end
    if (kOnce) return false;
    row += together;
    if (row < blocks[entry].count) return true;
    row = 0;
    entry += step;
    return entry < entries;
  }
};

// kMost: rows of the step at most.
template <int kMost, Formats kFormats>
__global__ void __launch_bounds__(kBoundThreads, register_blocks(2))
    few_kernel(const __grid_constant__ ExpertsDown a, const __grid_constant__ Plan plan) {
  static_assert(kFewChosen <= kRoutedWarps, "a warp for each expert of a row");
  extern __shared__ __align__(128) unsigned char shared_memory[];
  __shared__ __align__(16) unsigned char routing_memory[sizeof(Routing<kMost>)];
  __shared__ uint64_t barriers[kWarps * kFewStages];
  auto& routing = *reinterpret_cast<Routing<kMost>*>(routing_memory);
  start_next();
  const Lane me;
  const int thread = static_cast<int>(threadIdx.x), tile = static_cast<int>(blockIdx.x);
  const int step_rows = kMost == 1 ? 1 : a.groups.rows, top_k = a.groups.top_k;
  const int shared_entries = kMost == 1 ? 1 : a.groups.shared_blocks();

  // This warp's matrices, and its part of their tiles.
  const bool shared = me.warp >= kRoutedWarps;
  const TileStack& w = shared ? a.shared : a.w;
  const Role& role = shared ? plan.shared : plan.routed;
  const int index = shared ? me.warp - kRoutedWarps : me.warp;
  const int first_block = shared ? index * role.blocks : 0;
  const int blocks = min(role.blocks, w.blocks - first_block);  // none for the last ones, perhaps
  const int first_entry = shared ? 0 : shared_entries + index, step = shared ? 1 : kRoutedWarps;
  const int block_bytes = w.block_bytes, pitch = row_pitch(role.width);

  Ring ring(shared_memory + role.ring + index * plan.stages * role.stage_bytes,
            barriers + me.warp * kFewStages, role.stage_bytes, plan.stages, me.lane);
  uint8_t* const rows = shared_memory + role.rows + index * plan.together * pitch;
  auto* const results = reinterpret_cast<float*>(shared_memory + plan.results);
  float* const shared_results = results + 16 * step_rows * top_k;

  Walk<kMost == 1> ahead{first_entry};
  int entries = 0;
  const uint8_t* from = nullptr;  // what is requested next
  int left = 0;                   // bytes of the part from there
  const auto open = [&](int matrix) {
    left = blocks * block_bytes;
    from = w.values + (shared ? 0 : matrix * w.matrix_bytes) +
           (tile * w.blocks + first_block) * static_cast<int64_t>(block_bytes);
  };
  const auto refill = [&] {
    if (left <= 0) return;
    const int bytes = min(role.chunk, left);
    ring.request(from, bytes, me.lane);
    from += bytes;
    left -= bytes;
    if (left == 0 && ahead.next(routing.blocks, entries, step, plan.together))
      open(routing.blocks[ahead.entry].matrix);
  };
  const auto begin = [&](int matrix) {
    if (first_entry >= entries) return;
    open(matrix);
#pragma unroll 1
    for (int i = 0; i < plan.stages; ++i) refill();
  };
  // Told of the choice, a warp waits for its own expert alone.
  const bool is_told = kMost == 1 && a.route.words.are_used();
  if (is_told) {
    entries = shared ? 1 : 1 + top_k;
    if (shared) begin(-1);
    if (shared ? index == 0 : index < top_k) {
      const int slot = shared ? top_k : index;
      const uint64_t word = wait_for_word(a.route.words.chosen + slot);
      const float weight = __uint_as_float(static_cast<uint32_t>(word));
      if (me.lane == 0) (shared ? routing.shared_weight : routing.weight + slot)[0] = weight;
      if (!shared) begin(static_cast<int>(word >> 32) - 1);
    }
  } else {
    route_few(a.route, routing, true, [&] {
      entries = shared ? shared_entries : routing.block_count;
      begin(first_entry < entries ? routing.blocks[first_entry].matrix : -1);
    });
  }
  wait_for_inputs();
  if (is_told && tile == 0)
    for (int i = thread; i <= a.route.experts; i += kThreads) a.route.words.logits[i] = 0;
  // Whoever adds up asks in time for what the sums join.
  const int my_row = thread / 16, my_output = tile * 16 + thread % 16;
  const bool adds = my_row < step_rows && my_output < a.w.n;
  float before = 0;
  if (adds && a.residual != nullptr)
    before = a.residual[static_cast<int64_t>(my_row) * a.hidden + my_output];

  const BlockFormat format = format_of(w);
  const bool coded = is_coded(w.format);
  const int first_input = first_block * block_inputs(w.format);
  const int inputs = min((shared ? a.shared_k : a.k) - first_input, role.width);
  Walk<kMost == 1> here{first_entry};
#pragma unroll 1
  for (bool goes = here.entry < entries && blocks > 0; goes;
       goes = here.next(routing.blocks, entries, step, plan.together)) {
    // Of one row the choices are not grouped.
    const int first = kMost > 1 ? routing.blocks[here.entry].begin + here.row : shared ? 0 : index;
    const int count =
        kMost == 1 ? 1 : min(routing.blocks[here.entry].count - here.row, plan.together);
    const auto source = [&](int r) {
      return shared || kMost == 1 ? first + r : routing.pairs[first + r];
    };
    __syncwarp();
    bring_rows(
        count, inputs, role.width, coded,
        [&](int r) {
          return (shared ? a.shared_x + source(r) * a.shared_x_stride
                         : a.x + source(r) * a.x_stride) +
                 first_input;
        },
        rows);
    __syncwarp();
    Inputs<kRows, true> x;
    point_at(x, me, count, role.width, coded, [&](int r) { return rows + r * pitch; });
    Sums<kRows> total = {};
    const auto keep = [&](float* to) {
      if (me.t >= count) return;
      to[me.g] = total[0][0];
      to[me.g + 8] = total[0][2];
    };
    const int row = source(min(me.t, count - 1));
#pragma unroll 1
    for (int block = 0; block < blocks; block += role.each) {
      const uint32_t at = ring.wait();
      if (shared) total[0][0] = total[0][2] = 0;
      multiply_blocks<true, kFormats>(format, at, min(role.each, blocks - block), block, 1, me, x,
                                      total);
      // Parts of the shared expert's sum are added in order.
      if (shared) keep(shared_results + 16 * (row * w.blocks + first_block + block));
      ring.release();
      refill();
    }
    if (!shared) keep(results + 16 * row);
  }
  __syncthreads();
  if (!adds) return;
  // Slots and parts in order; what there is none of adds nothing.
  const float* const mine = results + 16 * my_row * top_k + thread % 16;
  const float* const my_parts = shared_results + 16 * my_row * a.shared.blocks + thread % 16;
  float sum = 0, shared_sum = 0;
#pragma unroll
  for (int slot = 0; slot < kFewChosen; ++slot)
    if (slot < top_k) sum = fmaf(routing.weight[my_row * top_k + slot], mine[16 * slot], sum);
#pragma unroll
  for (int block = 0; block < kMostBlocks; ++block)
    if (block < a.shared.blocks) shared_sum += my_parts[16 * block];
  sum = fmaf(routing.shared_weight[my_row], shared_sum, sum);
  const int64_t at = static_cast<int64_t>(my_row) * a.hidden + my_output;
  a.partial[at] = sum;
  if (a.residual != nullptr) a.residual[at] = before + sum;
}

// Whether rows of k inputs can be brought.
bool can_bring(const __nv_bfloat16* x, int64_t stride, int k) {
  return reinterpret_cast<uintptr_t>(x) % 16 == 0 && stride % 8 == 0 && k % 8 == 0;
}

// How a launch shares out its memory; no stages: not at all.
struct Launch {
  Plan plan{};
  int64_t bytes = 0;
  bool one = false;
};
Launch plan_for(const ExpertsDown& args) {
  const Grouping& groups = args.groups;
  const int choices = groups.rows * groups.top_k;
  Launch l;
  if (args.route.logits == nullptr || !can_route(args.route) || args.w.blocks > kMostBlocks ||
      args.shared.blocks > kMostBlocks || !can_bring(args.x, args.x_stride, args.k) ||
      !can_bring(args.shared_x, args.shared_x_stride, args.shared_k))
    return l;
  l.one = is_common(args.w) && is_common(args.shared) && groups.rows == 1;
  Plan& plan = l.plan;
  plan.routed = {.blocks = args.w.blocks, .width = padded_inputs(args.k)};
  plan.shared = {.blocks = (args.shared.blocks + kSharedWarps - 1) / kSharedWarps,
                 .each = 1,
                 .chunk = args.shared.block_bytes,
                 .stage_bytes = kMostBlockBytes};
  plan.shared.width = padded_inputs(plan.shared.blocks * block_inputs(args.shared.format));
  const int own = static_cast<int>(l.one ? sizeof(Routing<1>) : sizeof(Routing<kFewRouted>)) +
                  kWarps * kFewStages * 8;
  // Stages of three blocks of int4 or two; two rows at a time or one.
  constexpr int kBlock = kMostBlockBytes / 2;
  for (const auto& [blocks, together] : {std::pair{3, 2}, {2, 2}, {3, 1}, {2, 1}}) {
    if (together > groups.rows) continue;
    plan.together = together;
    plan.routed.stage_bytes = blocks * kBlock;
    plan.routed.each = blocks * kBlock / args.w.block_bytes;
    plan.routed.chunk = plan.routed.each * args.w.block_bytes;
    const int row_bytes = together * (kRoutedWarps * row_pitch(plan.routed.width) +
                                      kSharedWarps * row_pitch(plan.shared.width));
    const int result_bytes = (choices + groups.rows * args.shared.blocks) * 64;
    const int stage = kRoutedWarps * blocks * kBlock + kSharedWarps * kMostBlockBytes;
    plan.stages = std::min((static_cast<int>(kMaxShared) - own - row_bytes - result_bytes) / stage,
                           kFewStages);
    if (plan.stages < 2) continue;
    plan.shared.ring = kRoutedWarps * plan.stages * plan.routed.stage_bytes;
    plan.routed.rows = plan.stages * stage;
    plan.shared.rows = plan.routed.rows + together * kRoutedWarps * row_pitch(plan.routed.width);
    plan.results = plan.routed.rows + row_bytes;
    l.bytes = plan.results + result_bytes;
    return l;
  }
  plan.stages = 0;
  return l;
}

}  // namespace

bool hears_of_choice(const ExpertsDown& args) {
  const Launch l = plan_for(args);
  return l.plan.stages > 0 && l.one;
}

bool down_few(cudaStream_t stream, const ExpertsDown& args) {
  const Launch l = plan_for(args);
  if (l.plan.stages == 0) return false;
  if (args.route.words.are_used() && down_one(stream, args)) return true;
  const bool common = is_common(args.w) && is_common(args.shared);
  const auto kernel = !common ? few_kernel<kFewRouted, Formats::kAny>
                      : l.one ? few_kernel<1, Formats::kCommon>
                              : few_kernel<kFewRouted, Formats::kCommon>;
  launch(stream, dim3(static_cast<unsigned>(args.w.tiles)), dim3(kThreads),
         static_cast<size_t>(l.bytes), kernel, args, l.plan);
  return true;
}

}  // namespace pewter::cuda
