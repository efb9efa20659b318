// The weight-streaming product.
//
// Split of work: a unit is 16 outputs of one matrix (gated: 16 of the gate and the same 16 of the
// up matrix) times one block of up to 8·kTiles rows. Blocks of 8 warps take contiguous ranges of
// units, row blocks outermost, so that the rows, held in shared memory, are fetched once; the 8
// warps share a unit's inputs and add their sums in warp order. How k is cut depends on k and the
// format alone: a row's bits do not depend on its neighbours. Bytes: weights once per row block; x
// from L2 once per block of threads; results. Precision: bf16 rows, exact weights (fragments.cuh),
// f32 sums. Limits: memory while rows are few. Each warp has its next 4 KiB of weights on the way
// while it works on the last, and the first are requested before the kernel before has ended.

#include "backend/cuda/linear/fragments.cuh"
#include "backend/cuda/linear/stream.h"

namespace pewter::cuda {
namespace {

constexpr int kWarps = 8, kThreads = kWarps * kWarp;
// Rows in shared memory are set apart by 16 bytes more than their length, so that the eight lanes
// that read at once hit different banks.
constexpr int kRowPadding = 8;
constexpr int64_t kMaxShared = 99 * 1024;

__host__ __device__ constexpr bool is_gated(StreamOutput output) {
  return output == StreamOutput::kGatedBF16;
}

// The unit a block of threads works on.
struct Unit {
  TileStack const* w[2];  // gated: gate, up
  int64_t index;          // of the matrix in its stack
  int tile, block;
};

__device__ inline int stack_tiles(const StreamArgs& a) {
  int tiles = a.w[0].tiles;
  if (a.blocks != nullptr) return max(tiles, a.shared[0].tiles);
  if (!is_gated(a.output))
    for (int i = 1; i < a.stacks; ++i) tiles += a.w[i].tiles;
  return tiles;
}

__device__ inline RowBlock row_block(const StreamArgs& a, int block, int capacity) {
  if (a.blocks != nullptr) return a.blocks[block];
  const int begin = block * capacity;
  return {0, begin, min(capacity, a.rows - begin)};
}

template <int kTiles>
__device__ inline Unit unit_at(const StreamArgs& a, int unit, int tiles) {
  Unit u;
  u.block = unit / tiles;
  u.tile = unit % tiles;
  u.index = 0;
  if (a.blocks != nullptr) {
    const int matrix = a.blocks[u.block].matrix;
    u.index = max(matrix, 0);
    u.w[0] = matrix < 0 ? &a.shared[0] : &a.w[0];
    u.w[1] = matrix < 0 ? &a.shared[1] : &a.w[1];
    return u;
  }
  u.w[0] = &a.w[0];
  u.w[1] = &a.w[1];
  if (!is_gated(a.output))
    for (int i = 0; i + 1 < a.stacks && u.tile >= u.w[0]->tiles; ++i) {
      u.tile -= u.w[0]->tiles;
      ++u.w[0];
    }
  return u;
}

// Where the warps are in their stream: batches of a slice of k, of one or two matrices, of a unit.
struct Cursor {
  int unit, part;   // part 1: the up matrix
  int record, end;  // of this warp's slice
};

__device__ inline void begin_slice(const TileStack& w, int tile, Cursor& at) {
  const int unit = record_unit(w.format), warp = threadIdx.x / kWarp;
  const int blocks = (w.records + unit - 1) / unit;
  at.record = warp * blocks / kWarps * unit;
  // The shared expert may have fewer outputs than the others: a tile it lacks is an empty slice.
  at.end = tile < w.tiles ? min((warp + 1) * blocks / kWarps * unit, w.records) : at.record;
}

// Copies the block's rows, padded with zeros to `width`, into shared memory.
__device__ inline void stage_rows(const StreamArgs& a, const RowBlock& block, int width,
                                  __nv_bfloat16* rows) {
  const bool shared = a.blocks != nullptr && block.matrix < 0;
  const __nv_bfloat16* x = shared ? a.shared_x : a.x;
  const int64_t stride = shared ? a.shared_x_stride : a.x_stride;
  const int k = shared ? a.shared_k : a.k;
  const bool whole = k % 8 == 0 && stride % 8 == 0;
  for (int r = 0; r < block.count; ++r) {
    int64_t source = block.begin + r;
    if (a.blocks != nullptr && !shared)
      source = a.pairs[block.begin + r] / a.pairs_per_row;
    else if (a.x_rows != nullptr)
      source = a.x_rows[source];
    const __nv_bfloat16* from = x + source * stride;
    __nv_bfloat16* to = rows + r * (width + kRowPadding);
    if (whole) {
      for (int i = threadIdx.x * 8; i < width; i += kThreads * 8)
        *reinterpret_cast<uint4*>(to + i) =
            i < k ? *reinterpret_cast<const uint4*>(from + i) : make_uint4(0, 0, 0, 0);
    } else {
      for (int i = threadIdx.x; i < width; i += kThreads)
        to[i] = i < k ? from[i] : __float2bfloat16(0.0f);
    }
  }
}

// Sums of the warps for one (output, row), in warp order.
template <int kTiles>
__device__ inline float total_of(const float* sums, int output, int row) {
  float total = 0;
#pragma unroll
  for (int warp = 0; warp < kWarps; ++warp)
    total += sums[(warp * 16 + output) * (8 * kTiles) + row];
  return total;
}

template <int kTiles>
__device__ inline void write_outputs(const StreamArgs& a, const Unit& u, const RowBlock& block,
                                     const float* sums) {
  for (int i = threadIdx.x; i < 16 * block.count; i += kThreads) {
    const int output = i % 16, r = i / 16, n = u.tile * 16 + output;
    if (n >= u.w[0]->n) continue;
    float value = total_of<kTiles>(sums, output, r);
    if (is_gated(a.output))
      value = silu(value) * total_of<kTiles>(sums + kWarps * 16 * 8 * kTiles, output, r);
    const bool shared = a.blocks != nullptr && block.matrix < 0;
    int64_t row = block.begin + r;
    if (a.blocks != nullptr && !shared) row = a.pairs[row];
    const int64_t column = u.w[0]->out_column + n;
    const int64_t at = row * (shared ? a.shared_out_stride : a.out_stride) + column;
    void* out = shared ? a.shared_out : a.out;
    switch (a.output) {
      case StreamOutput::kBF16:
      case StreamOutput::kGatedBF16:
        static_cast<__nv_bfloat16*>(out)[at] = __float2bfloat16(value);
        break;
      case StreamOutput::kAddF32:
        a.residual[row * a.residual_stride + column] += value;
        static_cast<float*>(out)[at] = value;
        break;
      case StreamOutput::kF32:
        static_cast<float*>(out)[at] = value;
        break;
    }
  }
}

template <int kTiles>
__global__ void __launch_bounds__(kThreads, kTiles <= 2 ? 2 : 1)
    stream_kernel(const __grid_constant__ StreamArgs a, int width) {
  extern __shared__ __align__(16) unsigned char shared_memory[];
  const int parts = is_gated(a.output) ? 2 : 1;
  constexpr int kSums = kWarps * 16 * 8 * kTiles;
  auto* const sums = reinterpret_cast<float*>(shared_memory);
  auto* const rows = reinterpret_cast<__nv_bfloat16*>(sums + parts * kSums);
  const int lane = threadIdx.x % kWarp, warp = threadIdx.x / kWarp, g = lane / 4, t = lane % 4;

  start_next();
  const bool dense = a.blocks == nullptr;
  if (!dense) wait_for_inputs();  // the blocks themselves are an input
  const int tiles = stack_tiles(a);
  const int row_blocks = dense ? (a.rows + 8 * kTiles - 1) / (8 * kTiles) : *a.block_count;
  const int units = tiles * row_blocks;
  const int first = static_cast<int>(static_cast<int64_t>(blockIdx.x) * units / gridDim.x);
  const int last = static_cast<int>((static_cast<int64_t>(blockIdx.x) + 1) * units / gridDim.x);
  if (first == last) {
    if (dense) wait_for_inputs();
    return;
  }

  Cursor at{first, 0, 0, 0};
  Unit unit = unit_at<kTiles>(a, first, tiles);
  begin_slice(*unit.w[0], unit.tile, at);
  Batch8 current;
  load_batch(*unit.w[0], unit.index, unit.tile, at.record, at.end, current);
  if (dense) wait_for_inputs();

  RowBlock block{};
  Inputs x[kTiles];
  float acc[kTiles][4] = {};
  bool new_block = true;
  while (true) {
    if (new_block) {
      block = row_block(a, unit.block, 8 * kTiles);
      if (width > 0) {
        __syncthreads();
        stage_rows(a, block, width, rows);
        __syncthreads();
      }
#pragma unroll
      for (int j = 0; j < kTiles; ++j) {
        const int r = 8 * j + g;
        if (r >= block.count) {
          x[j].row = nullptr;
        } else if (width > 0) {
          x[j].row = rows + r * (width + kRowPadding);
        } else {
          const bool shared = !dense && block.matrix < 0;
          int64_t source = block.begin + r;
          if (!dense && !shared)
            source = a.pairs[source] / a.pairs_per_row;
          else if (a.x_rows != nullptr)
            source = a.x_rows[source];
          x[j].row = shared ? a.shared_x + source * a.shared_x_stride : a.x + source * a.x_stride;
        }
      }
      new_block = false;
    }

    // The batch after this one, wherever it is.
    const TileStack& w = *unit.w[at.part];
    const Cursor now = at;
    const Unit here = unit;
    at.record += kBatch;
    const bool slice_ends = at.record >= at.end;
    if (slice_ends) {
      if (at.part + 1 < parts) {
        ++at.part;
      } else {
        at.part = 0;
        ++at.unit;
        if (at.unit < last) {
          unit = unit_at<kTiles>(a, at.unit, tiles);
          new_block = unit.block != here.block;
        }
      }
      if (at.unit < last) begin_slice(*unit.w[at.part], unit.tile, at);
    }
    Batch8 next;
    if (at.unit < last)
      load_batch(*unit.w[at.part], unit.index, unit.tile, at.record, at.end, next);

    consume<kTiles>(w, current, now.record, now.end, x, acc);
    if (slice_ends) {
      float* const to = sums + now.part * kSums + warp * 16 * 8 * kTiles;
#pragma unroll
      for (int j = 0; j < kTiles; ++j) {
        const int row = 8 * j + 2 * t;
        *reinterpret_cast<float2*>(to + g * 8 * kTiles + row) = make_float2(acc[j][0], acc[j][1]);
        *reinterpret_cast<float2*>(to + (g + 8) * 8 * kTiles + row) =
            make_float2(acc[j][2], acc[j][3]);
        acc[j][0] = acc[j][1] = acc[j][2] = acc[j][3] = 0;
      }
      if (now.part + 1 == parts) {
        __syncthreads();
        write_outputs<kTiles>(a, here, block, sums);
        __syncthreads();
      }
    }
    if (at.unit >= last) break;
    current = next;
  }
}

template <int kTiles>
void run(cudaStream_t stream, int multiprocessors, const StreamArgs& args) {
  const int64_t parts = is_gated(args.output) ? 2 : 1;
  const int64_t sum_bytes = parts * kWarps * 16 * 8 * kTiles * 4;
  int64_t width = 0;
  for (int i = 0; i < args.stacks; ++i)
    width = std::max<int64_t>(width, padded_k(args.w[i].format, args.k));
  if (args.blocks != nullptr)
    for (const TileStack& w : args.shared)
      if (w.tiles > 0) width = std::max(width, padded_k(w.format, args.shared_k));
  const int64_t rows = args.blocks != nullptr ? 8 * kTiles : std::min(args.rows, 8 * kTiles);
  int64_t row_bytes = rows * (width + kRowPadding) * 2;
  if (sum_bytes + row_bytes > kMaxShared) {
    CHECK(args.k % 128 == 0 && args.shared_k % 128 == 0, "rows of ", args.k,
          " inputs do not fit into shared memory");
    width = row_bytes = 0;  // from memory instead
  }
  const int64_t bytes = sum_bytes + row_bytes;
  static const bool prepared = [] {
    CUDA_CHECK(cudaFuncSetAttribute(stream_kernel<kTiles>,
                                    cudaFuncAttributeMaxDynamicSharedMemorySize, kMaxShared));
    return true;
  }();
  (void)prepared;
  int64_t tiles = args.w[0].tiles;
  if (!is_gated(args.output))
    for (int i = 1; i < args.stacks; ++i) tiles += args.w[i].tiles;
  const int64_t row_blocks =
      args.blocks != nullptr ? args.max_blocks : (args.rows + 8 * kTiles - 1) / (8 * kTiles);
  const int64_t resident = bytes <= kMaxShared / 2 && kTiles <= 2 ? 2 : 1;
  const int64_t grid = std::min<int64_t>(tiles * row_blocks, resident * multiprocessors);
  launch(stream, dim3(static_cast<unsigned>(grid)), dim3(kThreads), static_cast<size_t>(bytes),
         stream_kernel<kTiles>, args, static_cast<int>(width));
}

}  // namespace

TileStack stack_of(const WeightMatrix& w, int64_t out_column) {
  CHECK(w.layout == kTiledLayout, "a matrix that is not on the GPU");
  TileStack stack{.values = reinterpret_cast<const uint4*>(w.values.data()),
                  .value_stride = w.values.dim(1) / 16,
                  .format = w.format,
                  .n = static_cast<int>(w.n),
                  .tiles = static_cast<int>(tiles_of(w.n)),
                  .records = static_cast<int>(tile_records(w.format, w.k)),
                  .out_column = static_cast<int>(out_column)};
  if (w.scales.defined()) {
    stack.scales = w.scales.data();
    stack.scale_dtype = w.scales.dtype();
    stack.scale_stride = w.scales.dim(1);
    stack.groups = static_cast<int>((w.k + 127) / 128);
  }
  if (w.zeros.defined()) {
    stack.zeros = reinterpret_cast<const uint8_t*>(w.zeros.data());
    stack.zero_stride = w.zeros.dim(1);
  }
  return stack;
}

void stream_product(cudaStream_t stream, int multiprocessors, const StreamArgs& args) {
  if (args.rows == 0) return;
  if (args.blocks != nullptr) {  // the grouping made blocks of at most eight rows, or of 32
    return args.rows <= kFewRows ? run<1>(stream, multiprocessors, args)
                                 : run<4>(stream, multiprocessors, args);
  }
  if (args.rows <= 8) return run<1>(stream, multiprocessors, args);
  if (args.rows <= 16) return run<2>(stream, multiprocessors, args);
  run<4>(stream, multiprocessors, args);
}

}  // namespace pewter::cuda
