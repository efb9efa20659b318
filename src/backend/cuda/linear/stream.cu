// The weight-streaming product.
//
// Split of work: a unit is 16 outputs (gated: of both matrices). A block of threads has its first
// units from the start and then takes whichever is next, so that a multiprocessor that already
// works for the next kernel does less. The warps of a block share a unit: each takes every eighth
// block of its inputs, and their sums are added in order. How k is cut depends on the matrix alone,
// so a row's bits do not depend on its neighbours. The rows lie in shared memory where they fit,
// else they come from L1 and L2. Bytes: weights once per kRows rows; x from L2 once per block of
// threads; results. Precision: exact weights; bf16 rows or coded ones (fragments.cuh); f32 sums.
// Limits: memory. Some stages of weights are on the way (stages.cuh) across the borders of units,
// and the first are requested before the kernel before has ended. One row on an H200: 98 % of copy
// bandwidth for a head of 764 MB, 55 to 60 % for projections of 30 MB with the norm before them.
// Many rows are stream_wide.cu's, to the same bits; this kernel is its twin.

#include <algorithm>

#include "backend/cuda/linear/coded_rows.h"
#include "backend/cuda/linear/stream.h"
#include "backend/cuda/linear/stream_unit.cuh"
#include "backend/cuda/linear/stream_wide.h"

namespace pewter::cuda {
namespace {

// A unit as it stands in a queue: matrix · 2²⁴ + tile.
constexpr int kTileBits = 24;

// The units of a block of threads, by whoever requests weights; the others learn of them from a
// queue in shared memory. `claims` counts those taken beyond the fixed ones, and the blocks of
// threads that have taken their last, and is zero between kernels.
struct Units {
  static constexpr int kQueue = 8, kNone = -1;
  int begin, end, place, step, fixed, opened = 0;
  bool claiming;
  int claim = 0;  // lane 0: the next

  __device__ Units(const Split& split, const int32_t* claims) {
    const int index = static_cast<int>(blockIdx.x), shares = static_cast<int>(gridDim.x);
    const bool plain = index < split.plain_shares;
    begin = plain ? 0 : split.plain_units;
    end = plain ? split.plain_units : split.units;
    place = plain ? index : index - split.plain_shares;
    step = plain ? split.plain_shares : shares - split.plain_shares;
    fixed = split.fixed;
    claiming = kBulkCopies && !plain && claims != nullptr && step * fixed < end - begin;
  }
  __device__ bool wants_claim() const { return claiming && opened >= fixed; }
  __device__ void start_claim(int32_t* claims) {
    if (threadIdx.x == 0) claim = atomicAdd(claims, 1);
  }
  // The next unit, or kNone. With a claim: by warp 0, once one has been started.
  __device__ int next(int32_t* claims) {
    int unit = begin + place + opened * step;
    if (wants_claim()) {
      unit = begin + step * fixed + __shfl_sync(0xFFFFFFFFu, claim, 0);
      if (unit < end) start_claim(claims);  // none is left over when the last has been taken
    }
    ++opened;
    return unit < end ? unit : kNone;
  }
  // By thread 0, at the end.
  __device__ void finish(int32_t* claims) const {
    if (claiming && atomicAdd(claims + 1, 1) == step - 1) claims[0] = claims[1] = 0;
  }
};

// One of a block's 16 × rows results; `sums` are the unit's, the up matrix's behind the gate's.
template <int kRows>
__device__ inline void write_output(const StreamArgs& a, const TileStack& w, int n, int row,
                                    const float* sums, float before) {
  const int output = n % 16;
  float value = total_of<kRows>(sums, output, row);
  if (w.row_scales != nullptr) value *= w.row_scales[n];
  float up = 0;
  if (is_gated(a.output))
    up = total_of<kRows>(sums + kStreamWarps * kSliceSums<kRows>, output, row);
  write_sum(a, w, n, row, value, up, before);
}

// Sums are kept twice, the next unit's while the last one's are added up, where there is room.
template <int kRows>
constexpr int kBuffers = kRows == 32 ? 1 : 2;

template <int kRows, bool kShared, Formats kFormats>
__global__ void __launch_bounds__(kStreamThreads, register_blocks(kRows <= 8 ? 3 : 2))
    stream_kernel(const __grid_constant__ StreamArgs a, const __grid_constant__ Split split,
                  int stage_bytes, int stage_count, int width) {
  extern __shared__ __align__(128) unsigned char shared_memory[];
  __shared__ uint64_t barriers[kMostStages + 1];
  __shared__ __align__(16) unsigned char stack_memory[StreamArgs::kMaxStacks * sizeof(TileStack)];
  __shared__ int pieces[StreamArgs::kMaxStacks];
  __shared__ int queue[Units::kQueue];  // matrix · 2²⁴ + tile
  auto* const stacks = reinterpret_cast<TileStack*>(stack_memory);
  constexpr int kPartSums = kStreamWarps * kSliceSums<kRows>;
  start_next();
  const Lane me;
  const bool gated = is_gated(a.output);
  Stages<> stages(shared_memory, barriers, stage_bytes, stage_count);
  Transfer rows_barrier(barriers + kMostStages);
  auto* const sums = reinterpret_cast<float*>(shared_memory + stage_count * stage_bytes);
  const int unit_sums = (gated ? 2 : 1) * kPartSums;
  auto* const rows = reinterpret_cast<uint8_t*>(sums + kBuffers<kRows> * unit_sums);
  // Stacks are indexed at run time: from shared memory that costs no trip to the constants.
  if (threadIdx.x < StreamArgs::kMaxStacks) {
    stacks[threadIdx.x] = a.w[threadIdx.x];
    pieces[threadIdx.x] =
        static_cast<int>(threadIdx.x) < a.stacks ? piece_blocks(a.w[threadIdx.x], stage_bytes) : 0;
  }
  Units units(split, a.claims);
  const bool coded =
      is_coded(a.w[static_cast<int>(blockIdx.x) < split.plain_shares ? 0 : a.stacks - 1].format);
  __syncthreads();

  // What is requested next.
  const uint8_t* from = nullptr;
  int ahead_stack = 0, ahead_tile = 0, ahead_left = 0;  // blocks
  bool ended = false;                                   // there are no more units
  const auto aim = [&](int part) {
    const TileStack& w = stacks[ahead_stack + part];
    ahead_left = w.blocks;
    from = w.values + static_cast<int64_t>(ahead_tile) * w.blocks * w.block_bytes;
  };
  int ahead_part = 0;
  const auto open = [&] {
    const int at = units.opened % Units::kQueue, unit = units.next(a.claims);
    ahead_stack = 0, ahead_tile = unit, ahead_left = 0;
    ended = unit == Units::kNone;
    if (!ended) {
      while (!gated && ahead_tile >= stacks[ahead_stack].tiles)
        ahead_tile -= stacks[ahead_stack++].tiles;
      aim(0);
    }
    if (threadIdx.x == 0) queue[at] = ended ? unit : ahead_stack << kTileBits | ahead_tile;
  };
  bool waited = false;
  const auto refill = [&] {
    if (ahead_left == 0 && waited && !ended && units.wants_claim()) open();
    if (ahead_left == 0) return;
    const int stack = ahead_stack + ahead_part, count = min(pieces[stack], ahead_left);
    const int bytes = count * stacks[stack].block_bytes;
    stages.open(bytes);
    stages.copy(0, from, bytes);
    stages.close();
    from += bytes;
    ahead_left -= count;
    if (ahead_left > 0) return;
    if (gated && (ahead_part ^= 1) == 1) return aim(1);
    if (waited || !units.wants_claim()) open();
  };
  int empty = stage_count;  // stages that nothing has been requested for yet
  if (Stages<>::fills(me.warp)) {
    open();
#pragma unroll 1
    for (; empty > 0 && ahead_left > 0; --empty) refill();
  }
  wait_for_inputs();
  if (Stages<>::fills(me.warp) && units.claiming) units.start_claim(a.claims);
  if (kShared) {
    if (coded) {
      // Coded rows lie as they will lie here.
      if (threadIdx.x == 0) rows_barrier.request(rows, a.rows * row_pitch(width), a.codes);
    } else {
      stage_rows(
          a.rows, a.k, width, false,
          [&](int r) { return a.x + (a.x_rows != nullptr ? a.x_rows[r] : r) * a.x_stride; }, rows,
          me.warp, kStreamWarps);
    }
  }
  // Claims have time to come while the first unit is at work.
  waited = true;
  if (kShared && coded) rows_barrier.wait();
  __syncthreads();

  Inputs<kRows, kShared> x;
  if constexpr (!kShared) x.k_end = readable_inputs(a.x, a.x_stride, a.k);
  point_at(x, me, a.rows, width, coded, [&](int r) -> const uint8_t* {
    if constexpr (kShared) return rows + r * row_pitch(width);
    if (coded) return a.codes + static_cast<int64_t>(r) * row_pitch(width);
    return reinterpret_cast<const uint8_t*>(a.x +
                                            (a.x_rows != nullptr ? a.x_rows[r] : r) * a.x_stride);
  });
  int buffer = 0;
#pragma unroll 1
  for (uint32_t number = 0;; ++number) {
    const int unit = queue[number % Units::kQueue];
    if (unit == Units::kNone) break;
    const int stack = unit >> kTileBits, tile = unit & ((1 << kTileBits) - 1);
    float* const to = sums + buffer * unit_sums;
    const TileStack& w = stacks[stack];
    // Whoever writes the unit's results asks in time for what they join. Another warp each time.
    constexpr int kEach = kRows == 32 ? 2 : 1;
    const uint32_t writer =
        (threadIdx.x + kStreamThreads - number % kStreamWarps * kWarp) % kStreamThreads;
    float before[kEach] = {};
    if (a.output == StreamOutput::kAddF32) {
#pragma unroll
      for (int i = 0; i < kEach; ++i) {
        const int row = static_cast<int>((writer + i * kStreamThreads) / 16);
        const int n = tile * 16 + static_cast<int>(writer % 16);
        if (row < a.rows && n < w.n)
          before[i] = a.residual[row * a.residual_stride + w.out_column + n];
      }
    }
#pragma unroll 1
    for (int part = 0; part <= static_cast<int>(gated); ++part) {
      const TileStack& m = stacks[stack + part];
      const BlockFormat format = format_of(m);
      const int piece = pieces[stack + part];
      Sums<kRows> slice = {};
#pragma unroll 1
      for (int block = 0; block < m.blocks; block += piece) {
        const uint32_t at = stages.wait();
        multiply_blocks<false, kFormats>(format, at + me.warp * m.block_bytes,
                                         blocks_of(me.warp, min(piece, m.blocks - block)),
                                         block + me.warp, kStreamWarps, me, x, slice);
        stages.release();
        if (block + piece >= m.blocks)
          keep_sums<kRows>(slice, me, to + part * kPartSums + me.warp * kSliceSums<kRows>);
        __syncthreads();
        if (Stages<>::fills(me.warp)) {
          refill();
#pragma unroll 1
          for (; empty > 0 && ahead_left > 0; --empty) refill();
        }
      }
    }
#pragma unroll
    for (int i = 0; i < kEach; ++i) {
      const int row = static_cast<int>((writer + i * kStreamThreads) / 16);
      const int n = tile * 16 + static_cast<int>(writer % 16);
      if (row < a.rows && n < w.n) write_output<kRows>(a, w, n, row, to, before[i]);
    }
    if (kBuffers<kRows> == 1)
      __syncthreads();
    else
      buffer ^= 1;
  }
  if (threadIdx.x == 0) units.finish(a.claims);
}

struct Fit {
  int64_t bytes;  // without the ring
  bool shared;
};
template <int kRows>
Fit fit_of(const StreamArgs& args) {
  const int parts = is_gated(args.output) ? 2 : 1;
  const int64_t sums = kBuffers<kRows> * parts * kStreamWarps * kSliceSums<kRows> * int64_t{4};
  const int64_t rows = static_cast<int64_t>(args.rows) * row_pitch(padded_inputs(args.k));
  const bool shared = kLeastStages * kSmallStage + sums + rows <= kMaxShared;
  return {sums + (shared ? rows : 0), shared};
}

template <int kRows>
void run(cudaStream_t stream, const Gpu& gpu, const StreamArgs& args) {
  const bool gated = is_gated(args.output);
  const Fit fit = fit_of<kRows>(args);
  const StagePlan stages = plan_stages(fit.bytes);
  const int64_t bytes = fit.bytes + stages.count * stages.bytes;
  const int most = gpu.multiprocessors * resident_blocks(gpu, bytes, kResidentBlocks);
  int units = args.w[0].tiles;
  for (int i = 1; i < args.stacks && !gated; ++i) units += args.w[i].tiles;
  const int grid = std::min(units, most);
  Split split = split_for(args, grid);
  // As many from the start as the first stages hold, when that leaves enough for later.
  const TileStack& last = args.w[args.stacks - 1];
  if (!gated && piece_blocks(last, stages.bytes) >= last.blocks)
    split.fixed = split.units >= 4 * grid ? std::min(stages.count, 3) : 2;
  constexpr Formats kAny = Formats::kAny, kFew = kRows <= 8 ? Formats::kCommon : kAny;
  const bool is_long = units > 8 * most;  // then it is no matter how soon the code is there
  const bool common =
      std::all_of(args.w, args.w + args.stacks, [](const TileStack& w) { return is_common(w); });
  const auto kernel = !fit.shared          ? stream_kernel<kRows, false, kAny>
                      : common && !is_long ? stream_kernel<kRows, true, kFew>
                                           : stream_kernel<kRows, true, kAny>;
  launch(stream, dim3(static_cast<unsigned>(grid)), dim3(kStreamThreads),
         static_cast<size_t>(bytes), kernel, args, split, stages.bytes, stages.count,
         padded_inputs(args.k));
}

void run_narrow(cudaStream_t stream, const Gpu& gpu, const StreamArgs& args) {
  if (args.rows <= 4)
    run<4>(stream, gpu, args);
  else if (args.rows <= 8)
    run<8>(stream, gpu, args);
  else if (args.rows <= 16)
    run<16>(stream, gpu, args);
  else
    run<32>(stream, gpu, args);
}

// Rows coded where a matrix wants that, and matrices in the order of split_for.
StreamArgs prepared(cudaStream_t stream, const StreamArgs& args, bool halves) {
  if (is_gated(args.output))
    CHECK(args.w[0].format == args.w[1].format && args.w[0].row_scales == nullptr,
          "gate and up in ", weight_format_name(args.w[0].format), " and ",
          weight_format_name(args.w[1].format));
  if (has_coded(args) && !args.has_codes)
    code_rows(stream, {.x = args.x,
                       .x_stride = args.x_stride,
                       .x_rows = args.x_rows,
                       .rows = args.rows,
                       .k = args.k,
                       .halves = halves,
                       .codes = args.codes});
  StreamArgs all = args;
  all.halves = halves;
  sort_stacks(all);
  return all;
}

// Up to `most` rows from `begin` on.
StreamArgs rows_of(const StreamArgs& all, int begin, int most) {
  StreamArgs some = all;
  some.rows = std::min(all.rows - begin, most);
  if (all.x_rows != nullptr)
    some.x_rows = all.x_rows + begin;
  else
    some.x = all.x + begin * all.x_stride;
  const int64_t size = all.output == StreamOutput::kBF16 || is_gated(all.output) ? 2 : 4;
  some.out = static_cast<uint8_t*>(all.out) + begin * all.out_stride * size;
  some.residual = all.residual == nullptr ? nullptr : all.residual + begin * all.residual_stride;
  some.codes = all.codes + begin * coded_row_bytes(all.k);
  return some;
}

constexpr int kMostNarrowRows = 32;

}  // namespace

bool has_coded(const StreamArgs& args) {
  for (int i = 0; i < args.stacks; ++i)
    if (is_coded(args.w[i].format)) return true;
  return false;
}

TileStack stack_of(const WeightMatrix& w, int64_t out_column) {
  CHECK(w.layout == kTiledLayout, "a matrix that is not on the GPU");
  const BlockShape shape =
      block_shape(w.format, w.scales.defined() ? w.scales.dtype() : DType::kF32, w.zeros.defined());
  const int64_t blocks = round_up(w.k, shape.inputs) / shape.inputs;
  return {.values = reinterpret_cast<const uint8_t*>(w.values.data()),
          .row_scales = w.format == WeightFormat::kInt8Row ? w.scales.data_as<float>() : nullptr,
          .matrix_bytes = w.values.dim(1),
          .format = w.format,
          .scale_dtype = w.scales.defined() ? w.scales.dtype() : DType::kF32,
          .has_zeros = w.zeros.defined(),
          .n = static_cast<int>(w.n),
          .tiles = static_cast<int>(tiles_of(w.n)),
          .blocks = static_cast<int>(blocks),
          .block_bytes = static_cast<int>(shape.bytes()),
          .out_column = static_cast<int>(out_column)};
}

void stream_narrow(cudaStream_t stream, const Gpu& gpu, const StreamArgs& args) {
  CHECK(!args.halves, "rows in halves");
  const StreamArgs all = prepared(stream, args, false);
  for (int begin = 0; begin < all.rows; begin += kMostNarrowRows)
    run_narrow(stream, gpu, rows_of(all, begin, kMostNarrowRows));
}

void stream_product(cudaStream_t stream, const Gpu& gpu, const StreamArgs& args) {
  if (!prefers_wide(args)) return stream_narrow(stream, gpu, args);
  const StreamArgs all =
      prepared(stream, args, args.has_codes ? args.halves : wants_halves(gpu, args));
  for (int begin = 0; begin < all.rows; begin += kMostWideRows)
    stream_wide(stream, gpu, rows_of(all, begin, kMostWideRows));
}

}  // namespace pewter::cuda
