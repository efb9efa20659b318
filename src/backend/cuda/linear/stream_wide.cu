// The weight-streaming product of 5 to 32 rows.
//
// Split of work: a unit is up to fifteen tiles of 16 outputs over all of k, one unit for each
// multiprocessor where that comes out even. Weights and rows come 128 inputs at a time through
// stages of shared memory, rows once for all tiles of the unit: at 32 rows they are as many bytes
// as eight tiles of int4. A warp multiplies one tile by 8 or 16 rows, or two tiles by half of 32.
// Three more warps request: one weights, from before the kernel before has ended, two rows, in
// turn. Where tiles are few and k is long, a unit is one slice of k, which needs an eighth of the
// rows' bytes; a second kernel adds the slices.
// Order of sums: stream.cu's. There warp s sums blocks s, s + 8, … of k, and those sums are added
// in the order of the warps; here a warp walks through k in the order of these slices.
// Bytes: weights once; rows from L2 once a unit; results; with slices f32 for each, in and out of
// L2. Precision: exact weights; bf16 rows or coded ones; f32 sums.
// Limits, on an H200 with the norm or the mixer before it: an int8 head of 764 MB takes 172 µs for
// 8 rows, 187 for 16, both memory, and 237 for 32 (76 % of copy bandwidth). The 33 MB of a delta
// layer's projections, mostly int4, take 15.5, 17.6 and 26.4 µs (51, 45, 30 %): 5 µs are the start,
// the first weights and the results. At 32 rows a multiprocessor's matrix instructions take 49 of
// the 58 cycles in which a block of weights comes, and three warps that begin a stage together do
// not keep them busy: without any copies it takes as long, and one tile by 32 rows a warp takes as
// long as two by 16.

#include <algorithm>

#include "backend/cuda/linear/parts.cuh"
#include "backend/cuda/linear/stream_unit.cuh"
#include "backend/cuda/linear/stream_wide.h"
#include "backend/cuda/linear/wide_products.cuh"

namespace pewter::cuda {
namespace {

constexpr int kRowWarps = 2;  // that request rows, in turn
// Warps that multiply: as many as there are registers for, with those that request.
constexpr int most_warps(int rows) { return rows == 8 ? 15 : 13; }
constexpr int wide_threads(int rows) { return (most_warps(rows) + 1 + kRowWarps) * kWarp; }
constexpr int kMostWideTiles = 15;  // of a unit
constexpr int kMostWideStages = 8;
constexpr int kSlices = kWideSlices;
static_assert(kSlices == kStreamWarps);
constexpr int kScaleBytes = sizeof(GroupScale);

struct WidePlan {
  int groups[StreamArgs::kMaxStacks] = {};  // units of each stack, times slices
  int units = 0;
  int slices = 1;                  // that are units of their own
  int row_parts = 1;               // warps that share a tile, each with its own rows
  int warps = 0;                   // that multiply
  int rows_at = 0, scales_at = 0;  // in a stage
  int stage_bytes = 0, stages = 0;
};

// A stage has 128 inputs: one block of most formats, two of bf16 where there are two left.
constexpr int blocks_together(WeightFormat format) { return 128 / block_inputs(format); }
struct WideUnit {
  int stack = 0, first = 0, count = 0;  // tiles
  int slice = 0, end_slice = kSlices;

  __device__ WideUnit(const WidePlan& p, const TileStack* stacks, int index) {
    if (p.slices > 1) slice = index % p.slices, end_slice = slice + 1, index /= p.slices;
    while (index >= p.groups[stack]) index -= p.groups[stack++];
    const Shares shares = Shares::of(stacks[stack].tiles, p.groups[stack]);
    first = shares.begin(index);
    count = shares.begin(index + 1) - first;
  }
  // Calls f(block, blocks) for each stage, in the order of the sums: its first block of k and how
  // many, kSlices apart.
  template <typename F>
  __device__ void for_stages(const TileStack& w, const F& f) const {
    const int together = blocks_together(w.format), all_blocks = w.blocks;
#pragma unroll 1
    for (int s = slice; s < end_slice; ++s)
#pragma unroll 1
      for (int block = s; block < all_blocks; block += kSlices * together)
        f(block, together == 2 && block + kSlices < all_blocks ? 2 : 1);
  }
};

// The stages and who waits for what in them. A warp that leaves stages to others is told by its own
// that all before the one that lay there last are empty: with three stages or more no barrier is
// two phases from what it waits for.
struct WideStages {
  uint32_t base, full, empty;  // addresses in shared memory
  int bytes, count, at = 0;
  uint32_t phase = 0;

  __device__ WideStages(const void* first, const uint64_t* barriers, const WidePlan& p)
      : base(shared_address(first)),
        full(shared_address(barriers)),
        empty(full + 8 * kMostWideStages),
        bytes(p.stage_bytes),
        count(p.stages) {}
  // By one thread each.
  __device__ void prepare(int stage, int readers) const {
    init_barrier<kBulkCopies ? 1 + kWarp : 2 * kWarp>(full + 8 * stage);
    asm volatile("mbarrier.init.shared.b64 [%0], %1;" ::"r"(empty + 8 * stage), "r"(readers)
                 : "memory");
    publish_barriers();
  }
  __device__ uint32_t address() const { return base + at * bytes; }
  __device__ uint32_t full_barrier() const { return full + 8 * at; }
  __device__ void wait_full() const { wait_barrier(full + 8 * at, phase); }
  __device__ void wait_empty() const { wait_barrier(empty + 8 * at, phase ^ 1); }
  __device__ void next() {
    if (++at == count) at = 0, phase ^= 1;
  }
  __device__ void release(int lane) {
    __syncwarp();
    if (lane == 0)
      asm volatile(
          "{ .reg .b64 state; mbarrier.arrive.shared.b64 state, [%0]; }" ::"r"(empty + 8 * at)
          : "memory");
    next();
  }
};

// By one warp: the blocks of a unit's tiles, stage by stage.
__device__ inline void send_weights(const WideUnit& unit, const TileStack* stacks, bool gated,
                                    WideStages& stages, int lane) {
  const TileStack& w = stacks[unit.stack];
  const int count = gated ? 2 * unit.count : unit.count, size = w.block_bytes;
  const int pitch = blocks_together(w.format) * size;
  const auto source = [&](int i) {
    const int64_t tile = unit.first + (gated ? i / 2 : i);
    return stacks[gated ? i % 2 : unit.stack].values + tile * w.blocks * size;
  };
  const uint8_t* const own = source(lane < count ? lane : 0);
  unit.for_stages(w, [&](int block, int blocks) {
    stages.wait_empty();
    if constexpr (kBulkCopies) {
      if (lane == 0) expect_bytes(stages.full_barrier(), blocks * count * size);
      __syncwarp();
      if (lane < count)
#pragma unroll 1
        for (int i = 0; i < blocks; ++i)
          copy_bulk_once(stages.address() + lane * pitch + i * size,
                         own + static_cast<int64_t>(block + i * kSlices) * size, size,
                         stages.full_barrier());
    } else {
#pragma unroll 1
      for (int i = 0; i < count * blocks; ++i)
        copy_by_threads(
            stages.address() + i / blocks * pitch + i % blocks * size,
            source(i / blocks) + static_cast<int64_t>(block + i % blocks * kSlices) * size, size,
            lane, kWarp);
      arrive_with_copies(stages.full_barrier());
    }
    stages.next();
  });
}

// 16 bytes, of which the last may not be there: zeros then.
__device__ inline void copy_piece(uint32_t to, const void* from, bool is_there) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(to), "l"(from),
               "r"(is_there ? 16 : 0)
               : "memory");
}

// By one of two warps that take turns: the rows' inputs of a unit's blocks, stage by stage. Rows
// that are not there are not written: nobody looks at their sums. `turn` is 0 when a stage is this
// warp's.
__device__ inline void send_rows(const StreamArgs& a, const WidePlan& p, const WideUnit& unit,
                                 const TileStack& w, WideStages& stages, int& turn, int lane) {
  constexpr int kPieces = kWideRowBytes / 16, kStep = kWarp / kPieces;  // two rows at a time
  const int piece = lane % kPieces, first_row = lane / kPieces;
  const bool coded = is_coded(w.format), is_bf16 = w.format == WeightFormat::kBF16;
  const int width = padded_inputs(a.k), pitch = row_pitch(width);
  // What a lane copies lies in every second row, which are swizzled alike.
  const uint32_t to = p.rows_at + swizzled(first_row, piece, is_bf16);
  const auto* const source = coded ? a.codes : reinterpret_cast<const uint8_t*>(a.x);  // of row 0
  const int64_t row_step = coded ? pitch : 2 * a.x_stride;
  const bool gathered = !coded && a.x_rows != nullptr;
  const int own_row = gathered && lane < a.rows ? a.x_rows[lane] : 0;
  const uint8_t* const own_scales = a.codes + static_cast<int64_t>(lane) * pitch + 2 * width;
  const uint32_t scales_to = p.scales_at + kScaleBytes * lane;
  unit.for_stages(w, [&](int block, int) {
    if (turn != 0) {
      --turn;
      return stages.next();
    }
    turn = kRowWarps - 1;
    // Of bf16 the second half of a row is a block behind, or behind the end.
    const int input =
        is_bf16 ? 64 * (block + piece / 8 * kSlices) + piece % 8 * 8 : 128 * block + 8 * piece;
    const bool is_there = coded || input < a.k;
    const uint8_t* from = source + 2 * (is_there ? input : 0);
    if (!gathered) from += first_row * row_step;
    stages.wait_empty();
    uint32_t at = stages.address() + to;
    if (gathered) {
#pragma unroll 4
      for (int r = first_row; r < kMostWideRows; r += kStep, at += kStep * kWideRowBytes) {
        const int64_t row = __shfl_sync(0xFFFFFFFFu, own_row, r);
        if (r < a.rows) copy_piece(at, from + row * row_step, is_there);
      }
    } else {
#pragma unroll 4
      for (int r = first_row; r < a.rows; r += kStep) {
        copy_piece(at, from, is_there);
        at += kStep * kWideRowBytes, from += kStep * row_step;
      }
    }
    if (coded && lane < a.rows)
      asm volatile("cp.async.ca.shared.global [%0], [%1], 8;" ::"r"(stages.address() + scales_to),
                   "l"(own_scales + kScaleBytes * block)
                   : "memory");
    arrive_with_copies(stages.full_barrier());
    stages.next();
  });
}

// What all sums of an output are multiplied by.
__device__ inline float row_scale(const TileStack& w, int n) {
  return w.row_scales != nullptr && n < w.n ? w.row_scales[n] : 1.0f;
}
// What a finished sum joins.
__device__ inline float residual_at(const StreamArgs& a, const TileStack& w, int n, int row) {
  if (a.output != StreamOutput::kAddF32 || row >= a.rows || n >= w.n) return 0;
  return a.residual[row * a.residual_stride + w.out_column + n];
}
__device__ inline void write_if_any(const StreamArgs& a, const TileStack& w, int n, int row,
                                    float value, float up, float before) {
  if (row < a.rows && n < w.n) write_sum(a, w, n, row, value, up, before);
}

// A warp's place in a unit: kOwn tiles from `own` on, kRows rows from `row` on.
struct WidePlace {
  int own, row;
};

// The sums of a warp's part of a unit. Of `count` tiles of a stage; stages in the order of
// WideUnit::for_stages.
template <int kRows, int kOwn>
__device__ inline void sum_unit(const StreamArgs& a, const WidePlan& p, const TileStack& w,
                                int count, int slice, int end_slice, const WidePlace& place,
                                const Lane& me, WideStages& stages, Sums<kRows> (&total)[kOwn]) {
  const WideKind kind = wide_kind(w, a.halves);
  const int step = kSlices * blocks_together(w.format), all_blocks = w.blocks;
  const int pitch = blocks_together(w.format) * w.block_bytes;
  // Places in a stage. A second tile that is not there is the first once more.
  const int first_at = place.own < count ? place.own * pitch : -1;
  const int second_at = place.own + 1 < count ? pitch : 0;
  const int rows_at = p.rows_at + place.row * kWideRowBytes;
  const int scales_at = p.scales_at + place.row * kScaleBytes;
#pragma unroll 1
  for (; slice < end_slice; ++slice) {
    Sums<kRows> sums[kOwn] = {};
#pragma unroll 1
    for (int block = slice; block < all_blocks; block += step) {
      stages.wait_full();
      if (first_at >= 0) {
        const uint32_t stage = stages.address();
        uint32_t at[kOwn];
        at[0] = stage + first_at;
        if constexpr (kOwn > 1) at[1] = at[0] + second_at;
        const WideRows x(stage + rows_at, stage + scales_at, kind == kWideBf16, me);
        multiply_wide<kRows>(kind, at, block + kSlices < all_blocks, me, x, sums);
      }
      stages.release(me.lane);
    }
#pragma unroll
    for (int i = 0; i < kOwn; ++i)
#pragma unroll
      for (int j = 0; j < kTiles<kRows>; ++j)
#pragma unroll
        for (int c = 0; c < 4; ++c)
          total[i][j][c] = fmaf(wide_unit(kind), sums[i][j][c], total[i][j][c]);
  }
}

// What becomes of them.
template <int kRows, int kOwn>
__device__ inline void finish_unit(const StreamArgs& a, const WidePlan& p, const WideUnit& unit,
                                   const TileStack& w, const WidePlace& place, const Lane& me,
                                   const Sums<kRows> (&total)[kOwn]) {
  const bool gated = is_gated(a.output);
  const int count = (gated ? 2 * unit.count : unit.count) - place.own;
#pragma unroll
  for (int i = 0; i < kOwn; ++i) {
    if (i >= count || (gated && i > 0)) return;
    const int tile = unit.first + (gated ? place.own / 2 : place.own + i);
    const auto output = [&](int c) { return tile * 16 + me.g + c / 2 * 8; };
    const auto row_of = [&](int j, int c) { return place.row + 8 * j + 2 * me.t + c % 2; };
    if (p.slices > 1) {
      float* const to = a.partials + static_cast<int64_t>(unit.slice) * a.rows * w.tiles * 16;
#pragma unroll
      for (int j = 0; j < kTiles<kRows>; ++j)
#pragma unroll
        for (int c = 0; c < 4; ++c)
          if (row_of(j, c) < a.rows) to[row_of(j, c) * w.tiles * 16 + output(c)] = total[i][j][c];
      continue;
    }
    const float scale[2] = {row_scale(w, output(0)), row_scale(w, output(2))};
    float before[kTiles<kRows>][4];  // all asked for before the first is waited for
#pragma unroll
    for (int j = 0; j < kTiles<kRows>; ++j)
#pragma unroll
      for (int c = 0; c < 4; ++c) before[j][c] = residual_at(a, w, output(c), row_of(j, c));
#pragma unroll
    for (int j = 0; j < kTiles<kRows>; ++j)
#pragma unroll
      for (int c = 0; c < 4; ++c)
        write_if_any(a, w, output(c), row_of(j, c), total[i][j][c] * scale[c / 2],
                     total[kOwn - 1][j][c], before[j][c]);
  }
}

template <int kRows, int kOwn>
__global__ void __launch_bounds__(wide_threads(kRows), 1)
    wide_kernel(const __grid_constant__ StreamArgs a, const __grid_constant__ WidePlan p) {
  extern __shared__ __align__(128) unsigned char shared_memory[];
  __shared__ uint64_t barriers[2 * kMostWideStages];
  __shared__ __align__(16) unsigned char stack_memory[StreamArgs::kMaxStacks * sizeof(TileStack)];
  auto* const stacks = reinterpret_cast<TileStack*>(stack_memory);
  start_next();
  const Lane me;
  const bool gated = is_gated(a.output);
  WideStages stages(shared_memory, barriers, p);
  if (threadIdx.x < p.stages) stages.prepare(static_cast<int>(threadIdx.x), p.warps);
  if (threadIdx.x < StreamArgs::kMaxStacks) stacks[threadIdx.x] = a.w[threadIdx.x];
  __syncthreads();
  const int first = static_cast<int>(blockIdx.x), step = static_cast<int>(gridDim.x);
  if (me.warp == p.warps) {
#pragma unroll 1
    for (int i = first; i < p.units; i += step)
      send_weights(WideUnit(p, stacks, i), stacks, gated, stages, me.lane);
    return;
  }
  wait_for_inputs();
  if (me.warp > p.warps + kRowWarps) return;
  if (me.warp > p.warps) {
    int turn = me.warp - p.warps - 1;
#pragma unroll 1
    for (int i = first; i < p.units; i += step) {
      const WideUnit unit(p, stacks, i);
      send_rows(a, p, unit, stacks[unit.stack], stages, turn, me.lane);
    }
    asm volatile("cp.async.wait_all;" ::: "memory");
    return;
  }
  const WidePlace place = {me.warp / p.row_parts * kOwn, me.warp % p.row_parts * kRows};
#pragma unroll 1
  for (int i = first; i < p.units; i += step) {
    Sums<kRows> total[kOwn] = {};
    {
      const WideUnit unit(p, stacks, i);
      sum_unit<kRows, kOwn>(a, p, stacks[unit.stack], gated ? 2 * unit.count : unit.count,
                            unit.slice, unit.end_slice, place, me, stages, total);
    }
    // The unit is looked up once more: registers are for sums until then.
    const WideUnit unit(p, stacks, i);
    finish_unit<kRows, kOwn>(a, p, unit, stacks[unit.stack], place, me, total);
  }
}

// Adds slices, in their order: four outputs of a row a thread. Limited by latency.
__global__ void __launch_bounds__(256) sum_slices_kernel(const __grid_constant__ StreamArgs a) {
  start_next();
  wait_for_inputs();
  const TileStack& w = a.w[0];
  const int width = w.tiles * 16, at = 4 * static_cast<int>(blockIdx.x * 256 + threadIdx.x);
  if (at >= a.rows * width) return;
  const int row = at / width, n = at % width;
  float4 part[kSlices];
  float before[4];
#pragma unroll
  for (int s = 0; s < kSlices; ++s)
    part[s] = *reinterpret_cast<const float4*>(a.partials +
                                               static_cast<int64_t>(s) * a.rows * width + at);
#pragma unroll
  for (int i = 0; i < 4; ++i) before[i] = residual_at(a, w, n + i, row);
  float sum[4] = {};
#pragma unroll
  for (int s = 0; s < kSlices; ++s)
    sum[0] += part[s].x, sum[1] += part[s].y, sum[2] += part[s].z, sum[3] += part[s].w;
#pragma unroll
  for (int i = 0; i < 4; ++i)
    write_if_any(a, w, n + i, row, sum[i] * row_scale(w, n + i), 0, before[i]);
}

// What a number of rows asks of a kernel.
struct WideShape {
  int rows, own, parts;  // of a warp, tiles of a warp, warps a tile
};
WideShape shape_for(int rows, bool gated, bool halves) {
  if (rows > 16) return {16, 2, 2};
  if (gated) return {16, 2, 1};
  return {rows > 8 || halves ? 16 : 8, 1, 1};
}

// Units of up to `most` tiles of the matrix with the most bytes, and of no more bytes of others;
// what the busiest multiprocessor then has to read. 0: does not fit.
int64_t plan_units(const Gpu& gpu, const StreamArgs& args, const WideShape& shape, int most,
                   int slices, WidePlan& plan) {
  const bool gated = is_gated(args.output);
  const int stacks = gated ? 1 : args.stacks, tile_width = gated ? 2 : 1;
  const auto bytes_of = [&](const TileStack& w) {
    return static_cast<int64_t>(w.blocks) * w.block_bytes * tile_width;
  };
  int largest = 0;
  for (int i = 1; i < stacks; ++i)
    if (args.w[i].tiles * bytes_of(args.w[i]) > args.w[largest].tiles * bytes_of(args.w[largest]))
      largest = i;
  const int64_t share = most * bytes_of(args.w[largest]);
  plan = {.slices = slices, .row_parts = shape.parts};
  int most_tiles = 0, weight_bytes = 0;
  int64_t unit_bytes = 0;
  for (int i = 0; i < stacks; ++i) {
    const TileStack& w = args.w[i];
    const int tiles = static_cast<int>(std::clamp<int64_t>(
        i == largest ? most : share / bytes_of(w), 1, kMostWideTiles / tile_width));
    plan.groups[i] = (w.tiles + tiles - 1) / tiles;
    plan.units += plan.groups[i];
    most_tiles = std::max(most_tiles, tiles * tile_width);
    weight_bytes =
        std::max(weight_bytes, tiles * tile_width * blocks_together(w.format) * w.block_bytes);
    unit_bytes = std::max(unit_bytes, tiles * bytes_of(w));
  }
  plan.warps = (most_tiles + shape.own - 1) / shape.own * shape.parts;
  const int rows = shape.rows * shape.parts;
  plan.rows_at = static_cast<int>(round_up(weight_bytes, 128));
  plan.scales_at = plan.rows_at + rows * kWideRowBytes;
  plan.stage_bytes = static_cast<int>(round_up(plan.scales_at + rows * kScaleBytes, 128));
  plan.stages = static_cast<int>(std::min<int64_t>(kMaxShared / plan.stage_bytes, kMostWideStages));
  if (plan.warps > most_warps(shape.rows) || plan.stages < 3) return 0;
  // As even as it may be without another round.
  const int rounds = (plan.units * slices + gpu.multiprocessors - 1) / gpu.multiprocessors;
  const int places = rounds * gpu.multiprocessors / slices - plan.units;
  const int more = std::min(places, args.w[largest].tiles - plan.groups[largest]);
  plan.groups[largest] += more;
  plan.units = (plan.units + more) * slices;
  // Rows come from the L2 cache, beside the weights.
  const int64_t row_bytes = static_cast<int64_t>(args.rows) * row_pitch(padded_inputs(args.k));
  return rounds * ((unit_bytes + row_bytes * 6 / 10) / slices);
}

WidePlan plan_for(const Gpu& gpu, const StreamArgs& args, const WideShape& shape) {
  WidePlan best;
  int64_t least = 0;
  const auto consider = [&](int most, int slices, int64_t more) {
    WidePlan plan;
    const int64_t cost = plan_units(gpu, args, shape, most, slices, plan);
    if (cost == 0 || (least > 0 && cost + more >= least)) return;
    least = cost + more, best = plan;
  };
  for (int most = kMostWideTiles; most > 0; --most) {
    consider(most, 1, 0);
    // Another kernel, and its bytes.
    constexpr int64_t kLaunch = 48 * 1024;
    if (args.partials != nullptr && args.stacks == 1 && args.w[0].blocks >= kSlices &&
        args.w[0].tiles * 16 <= args.partial_outputs)
      consider(most, kSlices, kLaunch + most * int64_t{2 * 16 * 4} * args.rows);
  }
  CHECK(least > 0, "no plan for ", args.rows, " rows of ", args.k);
  return best;
}

// With warps that have nothing to do: with them a second block of threads has no place on a
// multiprocessor, where a grid of few would share it and leave another idle.
template <int kRows, int kOwn>
void run(cudaStream_t stream, const StreamArgs& args, const WidePlan& plan, int grid) {
  launch(stream, dim3(static_cast<unsigned>(grid)), dim3(wide_threads(kRows)),
         static_cast<size_t>(plan.stages) * plan.stage_bytes, wide_kernel<kRows, kOwn>, args, plan);
}

}  // namespace

bool can_widen(const StreamArgs& args) {
  bool plain = false;
  for (int i = 0; i < args.stacks; ++i) plain = plain || !is_coded(args.w[i].format);
  // Pieces of 16 bytes are there or not.
  if (plain &&
      (args.k % 8 != 0 || args.x_stride % 8 != 0 || reinterpret_cast<uintptr_t>(args.x) % 16 != 0))
    return false;
  if (!is_gated(args.output)) return true;
  const TileStack &gate = args.w[0], &up = args.w[1];
  return gate.format == up.format && gate.scale_dtype == up.scale_dtype &&
         gate.has_zeros == up.has_zeros && gate.tiles == up.tiles;
}

bool prefers_wide(const StreamArgs& args) {
  int64_t bytes = 0;
  for (int i = 0; i < args.stacks; ++i)
    bytes += static_cast<int64_t>(args.w[i].tiles) * args.w[i].blocks * args.w[i].block_bytes;
  return args.rows >= kLeastWideRows && (args.rows > 8 || bytes >= kLeastWideBytes) &&
         can_widen(args);
}

bool wants_halves(const Gpu& gpu, const StreamArgs& args) {
  if (!gpu.adds_exactly || args.rows < kLeastHalvesRows || !prefers_wide(args)) return false;
  bool any = false;
  for (int i = 0; i < args.stacks; ++i) {
    if (!is_coded(args.w[i].format)) continue;
    if (args.w[i].format == WeightFormat::kInt8Row || !is_common(args.w[i])) return false;
    any = true;
  }
  return any;
}

void stream_wide(cudaStream_t stream, const Gpu& gpu, const StreamArgs& args) {
  CHECK(args.rows <= kMostWideRows, args.rows, " rows");
  const WideShape shape = shape_for(args.rows, is_gated(args.output), args.halves);
  const WidePlan plan = plan_for(gpu, args, shape);
  const int grid = std::min(plan.units, gpu.multiprocessors);
  if (shape.own == 2)
    run<16, 2>(stream, args, plan, grid);
  else if (shape.rows == 16)
    run<16, 1>(stream, args, plan, grid);
  else
    run<8, 1>(stream, args, plan, grid);
  if (plan.slices == 1) return;
  const int threads = args.rows * args.w[0].tiles * 16 / 4;
  launch(stream, dim3(static_cast<unsigned>((threads + 255) / 256)), dim3(256), 0,
         sum_slices_kernel, args);
}

}  // namespace pewter::cuda
