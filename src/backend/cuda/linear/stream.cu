// The weight-streaming product.
//
// Split of work: a unit is 16 outputs (gated: of both matrices); blocks of threads take contiguous
// ranges of units that cost the same bytes. The warps of a block share a unit: each takes every
// eighth block of its inputs, and their sums are added in order. How k is cut depends on the matrix
// alone, so a row's bits do not depend on its neighbours. The rows lie in shared memory where they
// fit, else they come from L1 and L2.
// Bytes: weights once per 8·kTiles rows; x from L2 once per block of threads; results.
// Precision: exact weights; bf16 rows or coded ones (fragments.cuh); f32 sums.
// Limits: memory. Two stages of weights are on the way (stages.cuh) across the borders of units,
// and the first are requested before the kernel before has ended.

#include <algorithm>

#include "backend/cuda/linear/coded_rows.h"
#include "backend/cuda/linear/parts.cuh"
#include "backend/cuda/linear/stream.h"

namespace pewter::cuda {
namespace {

constexpr bool is_gated(StreamOutput output) { return output == StreamOutput::kGatedBF16; }

// What a tile costs to read, in KiB or so.
__host__ __device__ inline int cost_of(const TileStack& w) {
  return max(w.blocks * w.block_bytes / 1024, 1);
}

// bf16 rows and coded ones are for different blocks of threads: the first `shares` of those take
// the units of the first `stacks` matrices, which want bf16 rows. Zeros where all want the same.
struct PlainPart {
  int stacks = 0, units = 0, shares = 0;
};

// The first unit of share `index` of `shares` equal ones.
__device__ inline int first_unit(const StreamArgs& a, const PlainPart& plain, int index,
                                 int shares) {
  if (index < plain.shares || is_gated(a.output)) {
    const int units = is_gated(a.output) ? a.w[0].tiles : plain.units;
    const int among = is_gated(a.output) ? shares : plain.shares;
    return static_cast<int>(static_cast<uint32_t>(units) * static_cast<uint32_t>(index) /
                            static_cast<uint32_t>(among));
  }
  int total = 0, first = plain.units;
  for (int i = plain.stacks; i < a.stacks; ++i) total += a.w[i].tiles * cost_of(a.w[i]);
  const auto part =
      static_cast<float>(index - plain.shares) / static_cast<float>(shares - plain.shares);
  int cost = min(static_cast<int>(static_cast<float>(total) * part), total);
  if (index == shares) cost = total;
  for (int i = plain.stacks; i < a.stacks; ++i) {
    const int each = cost_of(a.w[i]), all = a.w[i].tiles * each;
    if (cost <= all) return first + (cost + each - 1) / each;
    cost -= all;
    first += a.w[i].tiles;
  }
  return first;
}

// The way through a block's units: which piece of which tile comes next.
struct Walk {
  int unit, end;  // of the block of threads
  int stack = 0, tile = 0;
  int part = 0;   // gated: 0 gate, 1 up
  int block = 0;  // first of the piece

  __device__ Walk(const StreamArgs& a, const TileStack* w, int first, int last)
      : unit(first), end(last), tile(first) {
    if (!is_gated(a.output))
      while (stack + 1 < a.stacks && tile >= w[stack].tiles) tile -= w[stack++].tiles;
  }
  __device__ void next(bool gated, const TileStack* w, const int* pieces) {
    block += pieces[stack + part];
    if (block < w[stack + part].blocks) return;
    block = 0;
    if (gated && part == 0) {
      part = 1;
      return;
    }
    part = 0;
    ++unit;
    ++tile;
    if (!gated && tile == w[stack].tiles) {
      tile = 0;
      ++stack;
    }
  }
};

// One of a block's 16 × rows results; `sums` are the unit's, the up matrix's behind the gate's.
template <int kTiles>
__device__ inline void write_output(const StreamArgs& a, const TileStack& w, int n, int row,
                                    const float* sums, float before) {
  const int output = n % 16;
  float value = total_of<kTiles>(sums, output, row);
  if (w.row_scales != nullptr) value *= w.row_scales[n];
  const int64_t at = row * a.out_stride + w.out_column + n;
  switch (a.output) {
    case StreamOutput::kGatedBF16:
      value = silu(value) * total_of<kTiles>(sums + kStreamWarps * kSliceSums<kTiles>, output, row);
      [[fallthrough]];
    case StreamOutput::kBF16:
      static_cast<__nv_bfloat16*>(a.out)[at] = __float2bfloat16(value);
      break;
    case StreamOutput::kAddF32:
      a.residual[row * a.residual_stride + w.out_column + n] = before + value;
      [[fallthrough]];
    case StreamOutput::kF32:
      static_cast<float*>(a.out)[at] = value;
      break;
  }
}

template <int kTiles>
constexpr int kRegisterBlocks = kTiles == 1 ? 4 : 2;  // beside each other, as registers go
// Sums are kept twice, the next unit's while the last one's are added up, where there is room.
template <int kTiles>
constexpr int kBuffers = kTiles == 4 ? 1 : 2;

// At most 8·kTiles rows.
template <int kTiles, bool kShared>
__global__ void __launch_bounds__(kStreamThreads, kRegisterBlocks<kTiles>)
    stream_kernel(const __grid_constant__ StreamArgs a, const __grid_constant__ PlainPart plain,
                  int stage_bytes, int width) {
  extern __shared__ __align__(128) unsigned char shared_memory[];
  __shared__ uint64_t barriers[kStages + 1];
  __shared__ __align__(16) unsigned char stack_memory[StreamArgs::kMaxStacks * sizeof(TileStack)];
  __shared__ int pieces[StreamArgs::kMaxStacks];
  auto* const stacks = reinterpret_cast<TileStack*>(stack_memory);
  constexpr int kPartSums = kStreamWarps * kSliceSums<kTiles>;
  start_next();
  const Lane me;
  const bool gated = is_gated(a.output);
  Stages<> stages(shared_memory, barriers, stage_bytes);
  const Transfer rows_barrier(barriers + kStages);
  auto* const sums = reinterpret_cast<float*>(shared_memory + kStages * stage_bytes);
  const int unit_sums = (gated ? 2 : 1) * kPartSums;
  auto* const rows = reinterpret_cast<uint8_t*>(sums + kBuffers<kTiles> * unit_sums);
  // Stacks are indexed at run time: from shared memory that costs no trip to the constants.
  if (threadIdx.x < StreamArgs::kMaxStacks) {
    stacks[threadIdx.x] = a.w[threadIdx.x];
    pieces[threadIdx.x] =
        static_cast<int>(threadIdx.x) < a.stacks ? piece_blocks(a.w[threadIdx.x], stage_bytes) : 0;
  }
  const int index = static_cast<int>(blockIdx.x), shares = static_cast<int>(gridDim.x);
  const int first = first_unit(a, plain, index, shares);
  const int last = first_unit(a, plain, index + 1, shares);
  __syncthreads();

  Walk ahead(a, stacks, first, last);
  const auto refill = [&] {
    if (ahead.unit >= last) return;
    const TileStack& w = stacks[ahead.stack + ahead.part];
    const int bytes = min(pieces[ahead.stack + ahead.part], w.blocks - ahead.block) * w.block_bytes;
    stages.open(bytes);
    stages.copy(
        0, w.values + (static_cast<int64_t>(ahead.tile) * w.blocks + ahead.block) * w.block_bytes,
        bytes);
    stages.close();
    ahead.next(gated, stacks, pieces);
  };
  const bool coded = is_coded(stacks[ahead.stack].format);
  if (Stages<>::fills(me.warp))
#pragma unroll 1
    for (int i = 0; i < kStages; ++i) refill();
  wait_for_inputs();
  if (kShared) {
    if (coded) {
      // Coded rows lie as they will lie here.
      if (threadIdx.x == 0) rows_barrier.request(rows, a.codes, a.rows * row_pitch(width));
      rows_barrier.wait();
    } else {
      stage_rows(
          a.rows, a.k, width, false,
          [&](int r) { return a.x + (a.x_rows != nullptr ? a.x_rows[r] : r) * a.x_stride; }, rows,
          me.warp, kStreamWarps);
      __syncthreads();
    }
  }
  if (first == last) return;

  Inputs<kTiles, kShared> x;
  if constexpr (kShared) {
    point_at(x, me, a.rows, width, [&](int r) { return rows + r * row_pitch(width); });
  } else {
    x.k_end = readable_inputs(a.x, a.x_stride, a.k);
    point_at(x, me, a.rows, width, [&](int r) -> const uint8_t* {
      if (coded) return a.codes + static_cast<int64_t>(r) * row_pitch(width);
      return reinterpret_cast<const uint8_t*>(a.x +
                                              (a.x_rows != nullptr ? a.x_rows[r] : r) * a.x_stride);
    });
  }
  Walk here(a, stacks, first, last);
  int buffer = 0;
#pragma unroll 1
  while (here.unit < last) {
    float* const to = sums + buffer * unit_sums;
    const TileStack& w = stacks[here.stack];
    const int tile = here.tile;
    // Whoever writes the unit's results asks in time for what they join. Another warp each time.
    constexpr int kEach = kTiles == 4 ? 2 : 1;
    const int writer =
        (static_cast<int>(threadIdx.x) + kStreamThreads - here.unit % kStreamWarps * kWarp) %
        kStreamThreads;
    float before[kEach] = {};
    if (a.output == StreamOutput::kAddF32) {
#pragma unroll
      for (int i = 0; i < kEach; ++i) {
        const int row = (writer + i * kStreamThreads) / 16, n = tile * 16 + writer % 16;
        if (row < a.rows && n < w.n)
          before[i] = a.residual[row * a.residual_stride + w.out_column + n];
      }
    }
#pragma unroll 1
    for (int part = 0; part <= static_cast<int>(gated); ++part) {
      const TileStack& m = stacks[here.stack + part];
      const BlockFormat format = format_of(m);
      const int piece = pieces[here.stack + part];
      Sums<kTiles> slice = {};
#pragma unroll 1
      for (int block = 0; block < m.blocks; block += piece) {
        const uint32_t at = stages.wait();
        multiply_blocks<kTiles, kShared>(format, at + me.warp * m.block_bytes,
                                         blocks_of(me.warp, min(piece, m.blocks - block)),
                                         block + me.warp, kStreamWarps, me, x, slice);
        stages.release();
        if (block + piece >= m.blocks)
          keep_sums<kTiles>(slice, me, to + part * kPartSums + me.warp * kSliceSums<kTiles>);
        __syncthreads();
        if (Stages<>::fills(me.warp)) refill();
      }
    }
    ++here.unit;
    ++here.tile;
    if (!gated && here.tile == w.tiles) {
      here.tile = 0;
      ++here.stack;
    }
#pragma unroll
    for (int i = 0; i < kEach; ++i) {
      const int row = (writer + i * kStreamThreads) / 16, n = tile * 16 + writer % 16;
      if (row < a.rows && n < w.n) write_output<kTiles>(a, w, n, row, to, before[i]);
    }
    if (kBuffers<kTiles> == 1)
      __syncthreads();
    else
      buffer ^= 1;
  }
}

struct Fit {
  int64_t bytes;  // without the ring
  bool shared;
};
template <int kTiles>
Fit fit_of(const StreamArgs& args) {
  const int parts = is_gated(args.output) ? 2 : 1;
  const int64_t sums = kBuffers<kTiles> * parts * kStreamWarps * kSliceSums<kTiles> * int64_t{4};
  const int64_t rows = static_cast<int64_t>(args.rows) * row_pitch(padded_inputs(args.k));
  const bool shared = kStages * kSmallStage + sums + rows <= kMaxShared;
  return {sums + (shared ? rows : 0), shared};
}

// For a grid of so many blocks of threads.
PlainPart plain_part(const StreamArgs& args, int grid) {
  PlainPart plain;
  int64_t plain_cost = 0, cost = 0;
  for (int i = 0; i < args.stacks; ++i) {
    const int64_t more = static_cast<int64_t>(args.w[i].tiles) * cost_of(args.w[i]);
    cost += more;
    if (is_coded(args.w[i].format)) continue;
    ++plain.stacks;
    plain.units += args.w[i].tiles;
    plain_cost += more;
  }
  if (plain.stacks == 0 || plain.stacks == args.stacks) return {};
  // As many blocks of threads as let none have more than its share, if there are as many.
  const int64_t share = (cost + grid - 1) / grid;
  const int64_t each = std::max<int64_t>(1, share * plain.units / plain_cost);
  plain.shares = static_cast<int>(
      std::clamp<int64_t>((plain.units + each - 1) / each, 1, std::max(grid - 1, 1)));
  return plain;
}

template <int kTiles>
void run(cudaStream_t stream, const Gpu& gpu, const StreamArgs& args) {
  const bool gated = is_gated(args.output);
  const Fit fit = fit_of<kTiles>(args);
  const int stage_bytes = stage_for(gpu, fit.bytes);
  const int64_t bytes = fit.bytes + kStages * stage_bytes;
  const int most = gpu.multiprocessors * resident_blocks(gpu, bytes, kResidentBlocks);
  int units = args.w[0].tiles;
  for (int i = 1; i < args.stacks && !gated; ++i) units += args.w[i].tiles;
  const int grid = std::min(units, most);
  const PlainPart plain = gated ? PlainPart{} : plain_part(args, grid);
  launch(stream, dim3(static_cast<unsigned>(grid)), dim3(kStreamThreads),
         static_cast<size_t>(bytes),
         fit.shared ? stream_kernel<kTiles, true> : stream_kernel<kTiles, false>, args, plain,
         stage_bytes, padded_inputs(args.k));
}

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

void stream_product(cudaStream_t stream, const Gpu& gpu, const StreamArgs& args) {
  constexpr int kMostRows = 32;
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
                       .codes = args.codes});
  StreamArgs some = args;
  // Matrices that want bf16 rows first; then those whose units take longest, so that none is left
  // for the end.
  if (!is_gated(args.output))
    std::stable_sort(some.w, some.w + some.stacks, [](const TileStack& a, const TileStack& b) {
      if (is_coded(a.format) != is_coded(b.format)) return is_coded(b.format);
      return a.blocks * a.block_bytes > b.blocks * b.block_bytes;
    });
  for (int begin = 0; begin < args.rows; begin += kMostRows) {
    some.rows = std::min(args.rows - begin, kMostRows);
    if (args.x_rows != nullptr)
      some.x_rows = args.x_rows + begin;
    else
      some.x = args.x + begin * args.x_stride;
    const int64_t size = args.output == StreamOutput::kBF16 || is_gated(args.output) ? 2 : 4;
    some.out = static_cast<uint8_t*>(args.out) + begin * args.out_stride * size;
    some.residual =
        args.residual == nullptr ? nullptr : args.residual + begin * args.residual_stride;
    some.codes = args.codes + begin * coded_row_bytes(args.k);
    if (some.rows <= 8)
      run<1>(stream, gpu, some);
    else if (some.rows <= 16)
      run<2>(stream, gpu, some);
    else
      run<4>(stream, gpu, some);
  }
}

}  // namespace pewter::cuda
