// Down matrices of the experts, and the sum over a row's experts, for so few rows that all of them
// fit into shared memory. experts_down.cu is the plain twin.
//
// Split of work: a block of threads takes a tile of 16 outputs; eight of its warps share the routed
// experts met, a warp all of k, so that nothing is added up between warps before the experts'
// results are; four share the shared expert, whose blocks cost more, by blocks of k. Rows are coded
// by the warp that multiplies them, some at a time. Where the router's logits are at hand each
// block of threads routes for itself, and has its first weights on the way, before the experts' up
// products end.
// Bytes: the matrices of the experts met, from memory once. Precision and order of sums: as in the
// twin, where a slice of k is one block. Limits: the latency from the rows to the sums: 43 % of
// copy bandwidth for one row of the 122B on an H200.

#include <algorithm>

#include "backend/cuda/linear/parts.cuh"
#include "backend/cuda/moe/experts_down_few.h"
#include "backend/cuda/moe/routing.cuh"

namespace pewter::cuda {
namespace {

constexpr int kRoutedWarps = 8, kSharedWarps = 4;
constexpr int kWarps = kRoutedWarps + kSharedWarps, kThreads = kWarps * kWarp;
constexpr int kMostBlocks = 8;  // of a tile
constexpr int kFewStages = 3;
constexpr int kSharedStage = kMostBlockBytes;
constexpr int kRows = block_rows(1);

// How shared memory is shared out.
struct Plan {
  int stage_bytes;  // of the routed experts' stages
  int stages;
  int together;  // rows of a block beside each other; more take turns
};

// A warp's work, one after the other: `together` rows of an entry of the table, and for the shared
// expert's, which come first, a part of k.
struct Walk {
  int entry, row = 0;
  __device__ bool next(const RowBlock* blocks, int entries, int step, int together) {  // false: end
    row += together;
    if (row < blocks[entry].count) return true;
    row = 0;
    entry += step;
    return entry < entries;
  }
};

// kMost: rows of the step at most.
template <int kMost, Formats kFormats>
__global__ void __launch_bounds__(kThreads, register_blocks(2))
    few_kernel(const __grid_constant__ ExpertsDown a, const __grid_constant__ Plan plan, int width,
               int shared_width) {
  extern __shared__ __align__(128) unsigned char shared_memory[];
  __shared__ uint64_t barriers[kWarps * kFewStages];
  __shared__ __align__(16) unsigned char routing_memory[sizeof(Routing<kMost>)];
  auto& routing = *reinterpret_cast<Routing<kMost>*>(routing_memory);
  start_next();
  const Lane me;
  const int thread = static_cast<int>(threadIdx.x), tile = static_cast<int>(blockIdx.x);
  const int step_rows = kMost == 1 ? 1 : a.groups.rows, top_k = a.groups.top_k,
            pairs = step_rows * top_k;
  const int shared_entries = a.groups.shared_blocks();

  // This warp's matrices, and its part of their tiles.
  const bool shared = me.warp >= kRoutedWarps;
  const TileStack& w = shared ? a.shared : a.w;
  const int index = shared ? me.warp - kRoutedWarps : me.warp;
  const int share = shared ? (w.blocks + kSharedWarps - 1) / kSharedWarps : w.blocks;
  const int first_block = shared ? min(index * share, w.blocks) : 0;
  const int blocks = min(share, w.blocks - first_block);
  const int first_entry = shared ? 0 : shared_entries + index, step = shared ? 1 : kRoutedWarps;
  const int my_width = shared ? shared_width : width;  // inputs of a row it has to do with

  // Shared memory: stages, rows, results.
  const int stage_count = plan.stages, together = plan.together;
  const int stage_bytes = shared ? kSharedStage : plan.stage_bytes;
  const int routed_bytes = kRoutedWarps * stage_count * plan.stage_bytes;
  const int stages_bytes = routed_bytes + kSharedWarps * stage_count * kSharedStage;
  Ring ring(shared_memory + (shared ? routed_bytes : 0) + index * stage_count * stage_bytes,
            barriers + me.warp * kFewStages, stage_bytes, stage_count, me.lane);
  uint8_t* const rows = shared_memory + stages_bytes + index * together * row_pitch(my_width) +
                        (shared ? kRoutedWarps * together * row_pitch(width) : 0);
  auto* const results = reinterpret_cast<float*>(  // [pairs][16]
      shared_memory + stages_bytes +
      together * (kRoutedWarps * row_pitch(width) + kSharedWarps * row_pitch(shared_width)));
  float* const shared_results = results + 16 * pairs;  // [rows][blocks][16]

  Walk ahead{first_entry};
  int entries = 0;
  const uint8_t* from = nullptr;  // what is requested next
  int left = 0;                   // bytes of the part from there
  const int chunk = shared ? w.block_bytes : stage_bytes / w.block_bytes * w.block_bytes;
  const auto open = [&] {
    left = blocks * w.block_bytes;
    from = w.values + (shared ? 0 : routing.blocks[ahead.entry].matrix * w.matrix_bytes) +
           (static_cast<int64_t>(tile) * w.blocks + first_block) * w.block_bytes;
  };
  const auto refill = [&] {
    if (left <= 0) return;
    const int bytes = min(chunk, left);
    ring.request(from, bytes, me.lane);
    from += bytes;
    left -= bytes;
    if (left == 0 && ahead.next(routing.blocks, entries, step, together)) open();
  };
  const auto begin = [&] {
    entries = shared ? shared_entries : routing.block_count;
    if (first_entry >= entries) return;
    open();
#pragma unroll 1
    for (int i = 0; i < stage_count; ++i) refill();
  };
  if (a.route.logits != nullptr) {
    route_few(a.route, routing, begin);
    wait_for_inputs();
  } else {
    wait_for_inputs();
    if (thread == 0) routing.block_count = *a.groups.block_count;
    for (int i = thread; i < min(a.groups.max_blocks, Routing<kMost>::kBlocks); i += kThreads)
      routing.blocks[i] = a.groups.blocks[i];
    for (int i = thread; i < pairs; i += kThreads) {
      routing.pairs[i] = a.groups.pairs[i];
      routing.weight[i] = a.weight[i];
    }
    if (thread < step_rows) routing.shared_weight[thread] = a.shared_weight[thread];
    __syncthreads();
    begin();
  }
  // Whoever adds up asks in time for what the sums join.
  const int my_row = thread / 16, my_output = tile * 16 + thread % 16;
  const bool adds = my_row < step_rows && my_output < a.w.n;
  float before = 0;
  if (adds && a.residual != nullptr)
    before = a.residual[static_cast<int64_t>(my_row) * a.hidden + my_output];

  const BlockFormat format = format_of(w);
  const bool coded = is_coded(w.format);
  const int each = chunk / w.block_bytes;
  const int first_input = first_block * block_inputs(w.format);
  const int inputs = min((shared ? a.shared_k : a.k) - first_input, my_width);
  Walk here{first_entry};
#pragma unroll 1
  for (bool goes = here.entry < entries && blocks > 0; goes;
       goes = here.next(routing.blocks, entries, step, together)) {
    const int first = routing.blocks[here.entry].begin + here.row;
    const int count = min(routing.blocks[here.entry].count - here.row, together);
    const auto source = [&](int r) { return shared ? first + r : routing.pairs[first + r]; };
    __syncwarp();
    stage_rows(
        count, inputs, my_width, coded,
        [&](int r) {
          return (shared ? a.shared_x + source(r) * a.shared_x_stride
                         : a.x + source(r) * a.x_stride) +
                 first_input;
        },
        rows, 0, 1);
    __syncwarp();
    Inputs<kRows, true> x;
    point_at(x, me, count, my_width, coded, [&](int r) { return rows + r * row_pitch(my_width); });
    Sums<kRows> total = {};
    const auto keep = [&](float* to) {
      if (me.t >= count) return;
      to[me.g] = total[0][0];
      to[me.g + 8] = total[0][2];
    };
    const int row = source(min(me.t, count - 1));
#pragma unroll 1
    for (int block = 0; block < blocks; block += each) {
      const uint32_t at = ring.wait();
      if (!shared) {
        multiply_blocks<true, kFormats>(format, at, min(each, blocks - block), block, 1, me, x,
                                        total);
      } else {  // parts of the row's sum, which are added in order
        total[0][0] = total[0][2] = 0;
        multiply_blocks<true, kFormats>(format, at, 1, block, 1, me, x, total);
        keep(shared_results + 16 * (row * w.blocks + first_block + block));
      }
      ring.release();
      refill();
    }
    if (!shared) keep(results + 16 * row);
  }
  __syncthreads();
  if (!adds) return;
  const auto result = [&](const float* of, int i) { return of[16 * i + thread % 16]; };
  float sum = 0, shared_sum = 0;
  for (int slot = 0; slot < top_k; ++slot) {
    const int pair = my_row * top_k + slot;
    sum = fmaf(routing.weight[pair], result(results, pair), sum);
  }
  for (int block = 0; block < a.shared.blocks; ++block)
    shared_sum += result(shared_results, my_row * a.shared.blocks + block);
  sum = fmaf(routing.shared_weight[my_row], shared_sum, sum);
  const int64_t at = static_cast<int64_t>(my_row) * a.hidden + my_output;
  a.partial[at] = sum;
  if (a.residual != nullptr) a.residual[at] = before + sum;
}

}  // namespace

bool down_few(cudaStream_t stream, const ExpertsDown& args) {
  const Grouping& groups = args.groups;
  const int64_t choices = static_cast<int64_t>(groups.rows) * groups.top_k;
  if (groups.rows > kFewRouted || choices > kRouteChoices || args.w.blocks > kMostBlocks ||
      args.shared.blocks > kMostBlocks)
    return false;
  const int width = padded_inputs(args.k);
  const int share = (args.shared.blocks + kSharedWarps - 1) / kSharedWarps;
  const int shared_width = padded_inputs(share * block_inputs(args.shared.format));
  const int64_t own = static_cast<int64_t>(sizeof(Routing<kFewRouted>)) + kWarps * kFewStages * 8;
  const int64_t results = (choices + groups.rows * args.shared.blocks) * 64;
  const int64_t row = kRoutedWarps * row_pitch(width) + kSharedWarps * row_pitch(shared_width);
  const auto kernel = !is_common(args.w) || !is_common(args.shared)
                          ? few_kernel<kFewRouted, Formats::kAny>
                      : groups.rows == 1 ? few_kernel<1, Formats::kCommon>
                                         : few_kernel<kFewRouted, Formats::kCommon>;
  // Stages of three blocks of int4 or two; two rows at a time or one.
  constexpr int kBlock = kMostBlockBytes / 2;
  for (const auto& [blocks, together] : {std::pair{3, 2}, {2, 2}, {3, 1}, {2, 1}}) {
    if (together > groups.rows) continue;
    const int64_t fixed = own + results + together * row;
    const int64_t stage = kRoutedWarps * blocks * kBlock + kSharedWarps * kSharedStage;
    const auto stages = std::min<int64_t>((kMaxShared - fixed) / stage, kFewStages);
    if (stages < 2) continue;
    launch(stream, dim3(static_cast<unsigned>(args.w.tiles)), dim3(kThreads),
           static_cast<size_t>(fixed - own + stages * stage), kernel, args,
           Plan{blocks * kBlock, static_cast<int>(stages), together}, width, shared_width);
    return true;
  }
  return false;
}

}  // namespace pewter::cuda
