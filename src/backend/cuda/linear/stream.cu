// The weight-streaming product.
//
// Split of work: a unit is 16 outputs of one matrix (gated: 16 of the gate and the same 16 of the
// up matrix) times one block of up to 8·kTiles rows. kSplit warps, a team, share a unit's inputs
// and add their sums in order; teams take contiguous ranges of units, row blocks outermost. The
// rows lie in shared memory, all of them where they fit, else those of the row block at hand, else
// they come from memory. How k is cut depends on the matrix alone: a row's bits do not depend on
// its neighbours. Bytes: weights once per row block; x from L2 once per block of threads; results.
// Precision: bf16 rows, exact weights (fragments.cuh), f32 sums.
// Limits: memory while rows are few. Each warp has 4 KiB of weights on the way while it works
// (fragments.cuh), and the first are requested before the kernel before has ended.

#include <algorithm>

#include "backend/cuda/linear/fragments.cuh"
#include "backend/cuda/linear/stream.h"

namespace pewter::cuda {
namespace {

constexpr int kWarps = 8, kThreads = kWarps * kWarp;  // of a block
// Rows in shared memory are set apart by 16 bytes more than their length, so that the eight lanes
// that read at once hit different banks.
constexpr int kRowPadding = 8;
constexpr int64_t kMaxShared = 99 * 1024;

constexpr bool is_gated(StreamOutput output) { return output == StreamOutput::kGatedBF16; }

// Where the rows are while a block of threads works.
enum class Rows { kAllShared, kBlockShared, kMemory };

// The unit a block of threads works on: indexes into the shared copy of the stacks.
struct Unit {
  int stack, index, tile, block;
};
constexpr int kSharedStack = StreamArgs::kMaxStacks;  // the shared expert's come behind the others

constexpr int kPlanStacks = StreamArgs::kMaxStacks + 2;

// What all threads of a block look up while they work.
struct Plan {
  TileStack stacks[kPlanStacks];
  int2 slices[kPlanStacks][kWarps];  // first block and end of each member of a team
};

__device__ inline RowBlock row_block(const StreamArgs& a, int block, int capacity) {
  if (a.blocks != nullptr) return a.blocks[block];
  const int begin = block * capacity;
  return {0, begin, min(capacity, a.rows - begin)};
}

__device__ inline Unit unit_at(const StreamArgs& a, const Plan& plan, int unit, int tiles) {
  Unit u{0, 0, unit % tiles, unit / tiles};
  if (a.blocks != nullptr) {
    const int matrix = a.blocks[u.block].matrix;
    u.stack = matrix < 0 ? kSharedStack : 0;
    u.index = max(matrix, 0);
  } else if (!is_gated(a.output)) {
    while (u.tile >= plan.stacks[u.stack].tiles) u.tile -= plan.stacks[u.stack++].tiles;
  }
  return u;
}

// Units in order, as stretches that cost the same each: records to read. Teams get equal costs.
struct Stretches {
  int costs[StreamArgs::kMaxStacks];  // of one unit
  int units[StreamArgs::kMaxStacks];
  int count = 0;

  __device__ void add(int units_of, int cost) {
    if (units_of == 0) return;
    costs[count] = cost;
    units[count++] = units_of;
  }
  __device__ int total() const {
    int sum = 0;
#pragma unroll
    for (int i = 0; i < StreamArgs::kMaxStacks; ++i)
      if (i < count) sum += units[i] * costs[i];
    return sum;
  }
  // The first unit that begins at this cost or later.
  __device__ int unit_at_cost(int cost) const {
    int first = 0;
#pragma unroll
    for (int i = 0; i < StreamArgs::kMaxStacks; ++i) {
      if (i >= count) break;
      if (cost <= units[i] * costs[i]) return first + (cost + costs[i] - 1) / costs[i];
      cost -= units[i] * costs[i];
      first += units[i];
    }
    return first;
  }
};

template <int kSplit>
__device__ inline int2 slice_of(const TileStack& w, int member) {
  return {member * w.blocks / kSplit, (member + 1) * w.blocks / kSplit};
}

// The end of a warp's stream at which records are requested: kRing ahead of where they are used.
struct Source {
  int number, last;  // units
  Unit unit;
  int part = 0;
  const uint8_t* from = nullptr;  // this lane's piece of the next record
  int left = 0, in_block = 0;     // records of the slice; place in their block
  int block_records = 0, tail_bytes = 0;

  __device__ void begin_slice(const Plan& plan, int member, int lane) {
    const TileStack& w = plan.stacks[unit.stack + part];
    const int2 slice = plan.slices[unit.stack + part][member];
    block_records = w.block_records;
    tail_bytes = w.tail_bytes;
    in_block = 0;
    // The shared expert may have fewer outputs than the others: a tile it lacks has no records.
    left = unit.tile < w.tiles ? (slice.y - slice.x) * block_records : 0;
    from = w.values + unit.index * w.matrix_bytes +
           (static_cast<int64_t>(unit.tile) * w.blocks + slice.x) * w.block_bytes() + lane * 16;
  }
};

// Which row of x (or, behind a.source_rows, of shared_x) row r of a block reads.
__device__ inline int source_row(const StreamArgs& a, const RowBlock& block, int r) {
  const int row = block.begin + r;
  if (a.blocks == nullptr) return a.x_rows != nullptr ? a.x_rows[row] : row;
  if (block.matrix < 0) return a.shared_reads_x ? row : a.source_rows + row;
  return a.pairs[row] / a.pairs_per_row;
}
__device__ inline const __nv_bfloat16* source_pointer(const StreamArgs& a, int source) {
  return source < a.source_rows ? a.x + source * a.x_stride
                                : a.shared_x + (source - a.source_rows) * a.shared_x_stride;
}

// Copies rows, padded with zeros to `width`, into shared memory: those of a block, or, without one,
// the sources in order.
__device__ inline void stage_rows(const StreamArgs& a, const RowBlock* block, int count, int width,
                                  __nv_bfloat16* rows) {
  constexpr int kPiece = kWarp * 8;
  const int pieces = (width + kPiece - 1) / kPiece, warp = threadIdx.x / kWarp;
  const int lane = threadIdx.x % kWarp;
  for (int i = warp; i < count * pieces; i += kWarps) {
    const int r = i / pieces, at = i % pieces * kPiece + lane * 8;
    const int source = block == nullptr ? r : source_row(a, *block, r);
    const int k = source < a.source_rows ? a.k : a.shared_k;
    const int64_t stride = source < a.source_rows ? a.x_stride : a.shared_x_stride;
    const __nv_bfloat16* from = source_pointer(a, source);
    __nv_bfloat16* to = rows + r * (width + kRowPadding);
    if (at >= width) continue;
    if (k % 8 == 0 && stride % 8 == 0) {
      *reinterpret_cast<uint4*>(to + at) =
          at < k ? *reinterpret_cast<const uint4*>(from + at) : make_uint4(0, 0, 0, 0);
    } else {
      for (int j = at; j < min(at + 8, width); ++j)
        to[j] = j < k ? from[j] : __float2bfloat16(0.0f);
    }
  }
}

// Sums of a team's members are [kSplit][16 outputs][8·kTiles rows].
template <int kTiles, int kSplit>
constexpr int kSums = kSplit * 16 * 8 * kTiles;
// They are kept twice where there is room: the next unit's while the last one's are added up.
template <int kTiles>
constexpr int kBuffers = kTiles <= 2 ? 2 : 1;

// One (output, row) of them, in the order of the members.
template <int kTiles, int kSplit>
__device__ inline float total_of(const float* sums, int output, int row) {
  float total = 0;
#pragma unroll
  for (int member = 0; member < kSplit; ++member)
    total += sums[(member * 16 + output) * (8 * kTiles) + row];
  return total;
}

// thread: of the team.
template <int kTiles, int kSplit>
__device__ inline void write_outputs(const StreamArgs& a, const TileStack& w, int tile,
                                     const RowBlock& block, const float* sums, int thread) {
  for (int i = thread; i < 16 * block.count; i += kSplit * kWarp) {
    const int output = i % 16, r = i / 16, n = tile * 16 + output;
    if (n >= w.n) continue;
    const bool shared = a.blocks != nullptr && block.matrix < 0;
    int64_t row = block.begin + r;
    if (a.blocks != nullptr && !shared) row = a.pairs[row];
    const int64_t column = w.out_column + n;
    const int64_t at = row * (shared ? a.shared_out_stride : a.out_stride) + column;
    void* out = shared ? a.shared_out : a.out;
    float before = 0;
    if (a.output == StreamOutput::kAddF32) before = a.residual[row * a.residual_stride + column];
    float value = total_of<kTiles, kSplit>(sums, output, r);
    switch (a.output) {
      case StreamOutput::kGatedBF16:
        value = silu(value) * total_of<kTiles, kSplit>(sums + kSums<kTiles, kSplit>, output, r);
        [[fallthrough]];
      case StreamOutput::kBF16:
        static_cast<__nv_bfloat16*>(out)[at] = __float2bfloat16(value);
        break;
      case StreamOutput::kAddF32:
        a.residual[row * a.residual_stride + column] = before + value;
        static_cast<float*>(out)[at] = value;
        break;
      case StreamOutput::kF32:
        static_cast<float*>(out)[at] = value;
        break;
    }
  }
}

template <int kSplit>
__device__ inline void team_barrier(int team) {
  if constexpr (kSplit == kWarps)
    __syncthreads();
  else
    asm volatile("bar.sync %0, %1;" ::"r"(team + 1), "n"(kSplit * kWarp) : "memory");
}

// Blocks of threads a multiprocessor holds, as far as registers go.
template <int kTiles>
constexpr int kResident = kTiles == 1   ? 4
                          : kTiles == 2 ? 3
                                        : 2;

template <int kTiles, int kSplit, bool kShared>
__global__ void __launch_bounds__(kThreads, kResident<kTiles>)
    stream_kernel(const __grid_constant__ StreamArgs a, Rows where, int width) {
  extern __shared__ __align__(16) unsigned char shared_memory[];
  __shared__ __align__(16) unsigned char plan_memory[sizeof(Plan)];
  Plan& plan = *reinterpret_cast<Plan*>(plan_memory);
  constexpr int kTeams = kWarps / kSplit, kTeamSums = kSums<kTiles, kSplit>;
  const Lane me;
  const int team = me.warp / kSplit, member = me.warp % kSplit;
  const int parts = is_gated(a.output) ? 2 : 1;
  Ring ring(shared_memory + me.warp * kPlaces * kPlaceBytes);
  auto* const all_sums = reinterpret_cast<float*>(shared_memory + kWarps * kPlaces * kPlaceBytes);
  float* const team_sums = all_sums + team * kBuffers<kTiles> * parts * kTeamSums;
  auto* const rows =
      reinterpret_cast<__nv_bfloat16*>(all_sums + kTeams * kBuffers<kTiles> * parts * kTeamSums);

  start_next();
  // Stacks are indexed at run time: from shared memory that costs no trip to the constants.
  if (threadIdx.x < kPlanStacks)
    plan.stacks[threadIdx.x] = threadIdx.x < StreamArgs::kMaxStacks
                                   ? a.w[threadIdx.x]
                                   : a.shared[threadIdx.x - StreamArgs::kMaxStacks];
  __syncthreads();
  if (threadIdx.x < kPlanStacks * kSplit)
    plan.slices[threadIdx.x / kSplit][threadIdx.x % kSplit] =
        slice_of<kSplit>(plan.stacks[threadIdx.x / kSplit], threadIdx.x % kSplit);
  __syncthreads();
  const bool dense = a.blocks == nullptr;
  if (!dense) wait_for_inputs();  // the blocks themselves are an input
  int tiles = plan.stacks[0].tiles;
  Stretches stretches;
  if (dense) {
    const int row_blocks = (a.rows + 8 * kTiles - 1) / (8 * kTiles);
    if (parts == 1)
      for (int i = 1; i < a.stacks; ++i) tiles += plan.stacks[i].tiles;
    if (row_blocks == 1 && parts == 1)
      for (int i = 0; i < a.stacks; ++i)
        stretches.add(plan.stacks[i].tiles, plan.stacks[i].records());
    else  // each block has tiles of all costs
      stretches.add(row_blocks * tiles, plan.stacks[0].records());
  } else {
    tiles = max(tiles, plan.stacks[kSharedStack].tiles);
    const int shared_blocks = (a.rows + a.block_capacity - 1) / a.block_capacity;
    stretches.add(shared_blocks * tiles, plan.stacks[kSharedStack].records());
    stretches.add((*a.block_count - shared_blocks) * tiles, plan.stacks[0].records());
  }
  const int total = stretches.total(), teams = static_cast<int>(gridDim.x) * kTeams;
  const int index = static_cast<int>(blockIdx.x) * kTeams + team;
  const int share = (total + teams - 1) / teams;
  const int first = stretches.unit_at_cost(min(index * share, total));
  const int last = stretches.unit_at_cost(min((index + 1) * share, total));
  const int stack_tiles_end = dense && parts == 1 ? 0 : tiles;  // 0: each stack its own
  const auto step = [&](Unit& unit, int number) {
    const int end = stack_tiles_end > 0 ? stack_tiles_end : plan.stacks[unit.stack].tiles;
    if (++unit.tile == end) unit = unit_at(a, plan, number, tiles);
  };

  const bool works = first < last;
  Source source{first, last};
  const auto refill = [&] {
    while (source.left == 0 && source.number < last) {
      if (source.part + 1 < parts) {
        ++source.part;
      } else {
        source.part = 0;
        if (++source.number < last) step(source.unit, source.number);
      }
      if (source.number < last) source.begin_slice(plan, member, me.lane);
    }
    if (source.left == 0) return ring.commit();
    --source.left;
    const bool with_tail = source.in_block == 0 && me.lane * 16 < source.tail_bytes;
    ring.push(source.from, me.lane, with_tail,
              source.block_records * static_cast<int>(kRecordBytes));
    source.from += kRecordBytes;
    if (++source.in_block == source.block_records) {
      source.in_block = 0;
      source.from += source.tail_bytes;
    }
  };
  Unit unit{};
  if (works) {
    unit = source.unit = unit_at(a, plan, first, tiles);
    source.begin_slice(plan, member, me.lane);
#pragma unroll 1
    for (int i = 0; i < kRing; ++i) refill();
  }
  if (dense) wait_for_inputs();
  if (where == Rows::kAllShared) {
    stage_rows(a, nullptr, a.source_rows + a.shared_rows, width, rows);
    __syncthreads();
  }
  if (!works) return;

  RowBlock block{};
  Inputs<kShared> x[kTiles];
  bool new_block = true;
  int buffer = 0;
#pragma unroll 1
  for (int number = first; number < last; ++number) {
    if (new_block) {
      block = row_block(a, unit.block, 8 * kTiles);
      if (where == Rows::kBlockShared) {  // one team a block of threads then
        __syncthreads();
        stage_rows(a, &block, block.count, width, rows);
        __syncthreads();
      }
#pragma unroll
      for (int j = 0; j < kTiles; ++j) {
        // A column without a row of its own repeats the first: nobody looks at its sums.
        const int r = 8 * j + me.g < block.count ? 8 * j + me.g : 0;
        if (!kShared)
          x[j].set(source_pointer(a, source_row(a, block, r)));
        else if (where == Rows::kBlockShared)
          x[j].set(rows + r * (width + kRowPadding));
        else
          x[j].set(rows + source_row(a, block, r) * (width + kRowPadding));
      }
    }
    float* const unit_sums = team_sums + buffer * parts * kTeamSums;
#pragma unroll 1
    for (int part = 0; part < parts; ++part) {
      const TileStack& w = plan.stacks[unit.stack + part];
      const int2 slice = plan.slices[unit.stack + part][member];
      Sums<kTiles> sums;
      if (unit.tile < w.tiles)
        consume<kTiles, kShared>(w, ring, slice.x, slice.y, me, x, sums, refill);
      float* const to = unit_sums + part * kTeamSums + member * 16 * 8 * kTiles;
#pragma unroll
      for (int j = 0; j < kTiles; ++j) {
        const float(&acc)[4] = sums.acc[j];
        const int row = 8 * j + 2 * me.t;
        *reinterpret_cast<float2*>(to + me.g * 8 * kTiles + row) = make_float2(acc[0], acc[1]);
        *reinterpret_cast<float2*>(to + (me.g + 8) * 8 * kTiles + row) =
            make_float2(acc[2], acc[3]);
      }
    }
    team_barrier<kSplit>(team);
    write_outputs<kTiles, kSplit>(a, plan.stacks[unit.stack], unit.tile, block, unit_sums,
                                  member * kWarp + me.lane);
    if (kBuffers<kTiles> == 1)
      team_barrier<kSplit>(team);
    else
      buffer ^= 1;
    if (number + 1 == last) break;
    const int before = unit.block;
    step(unit, number + 1);
    new_block = unit.block != before;
  }
}

// Warps that share a unit: enough records for each to fill its batch, so that what a unit costs
// besides is spread over them. A function of the matrices alone.
int split_of(const StreamArgs& args) {
  if (args.k % 128 != 0 || args.shared_k % 128 != 0) return kWarps;  // rows need padding
  int records = args.w[0].records();
  if (!is_gated(args.output) && args.blocks == nullptr)
    for (int i = 1; i < args.stacks; ++i)
      if (args.w[i].tiles > args.w[0].tiles) records = args.w[i].records();  // the largest matrix's
  return records >= 8 * kRing ? 8 : records >= 4 * kRing ? 4 : 2;
}

int64_t padded_k(const TileStack& w, int64_t k) {
  return round_up(k, w.format == WeightFormat::kBF16 ? 64 : 128);
}

template <int kTiles, int kSplit>
void run(cudaStream_t stream, const Gpu& gpu, const StreamArgs& args) {
  const int64_t parts = is_gated(args.output) ? 2 : 1;
  constexpr int64_t kTeams = kWarps / kSplit;
  const int64_t sum_bytes = kWarps * kPlaces * kPlaceBytes +
                            kTeams * kBuffers<kTiles> * parts * kSums<kTiles, kSplit> * 4;
  int64_t width = 0, tiles = args.w[0].tiles;
  for (int i = 0; i < args.stacks; ++i) width = std::max(width, padded_k(args.w[i], args.k));
  for (int i = 1; i < args.stacks && parts == 1; ++i) tiles += args.w[i].tiles;
  if (args.blocks != nullptr)
    for (const TileStack& w : args.shared)
      if (w.tiles > 0) width = std::max(width, padded_k(w, args.shared_k));
  const int64_t row_bytes = (width + kRowPadding) * 2;
  const int64_t all = args.x_rows == nullptr ? args.source_rows + args.shared_rows : INT32_MAX;
  const int64_t some = std::min(args.rows, 8 * kTiles);
  Rows where = Rows::kMemory;
  int64_t bytes = sum_bytes;
  if (sum_bytes + all * row_bytes <= kMaxShared) {
    where = Rows::kAllShared;
    bytes += all * row_bytes;
  } else if (kTeams == 1 && sum_bytes + some * row_bytes <= kMaxShared) {
    where = Rows::kBlockShared;
    bytes += some * row_bytes;
  } else {
    CHECK(args.k % 128 == 0 && args.shared_k % 128 == 0, "rows of ", args.k,
          " inputs do not fit into shared memory");
  }
  static const bool prepared = [] {
    for (const auto kernel :
         {stream_kernel<kTiles, kSplit, true>, stream_kernel<kTiles, kSplit, false>})
      CUDA_CHECK(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                      static_cast<int>(kMaxShared)));
    return true;
  }();
  (void)prepared;
  const int64_t row_blocks =
      args.blocks != nullptr ? args.max_blocks : (args.rows + 8 * kTiles - 1) / (8 * kTiles);
  const int64_t resident =
      std::clamp<int64_t>(gpu.shared_bytes / (bytes + 1024), 1, kResident<kTiles>);
  const int64_t grid =
      std::min<int64_t>((tiles * row_blocks + kTeams - 1) / kTeams, resident * gpu.multiprocessors);
  launch(stream, dim3(static_cast<unsigned>(grid)), dim3(kThreads), static_cast<size_t>(bytes),
         where == Rows::kMemory ? stream_kernel<kTiles, kSplit, false>
                                : stream_kernel<kTiles, kSplit, true>,
         args, where, static_cast<int>(width));
}

template <int kSplit>
void run_split(cudaStream_t stream, const Gpu& gpu, const StreamArgs& args) {
  if (args.blocks != nullptr)  // the grouping made blocks of at most eight rows, or of 32
    return args.rows <= kFewRows ? run<1, kSplit>(stream, gpu, args)
                                 : run<4, kSplit>(stream, gpu, args);
  if (args.rows <= 8) return run<1, kSplit>(stream, gpu, args);
  if (args.rows <= 16) return run<2, kSplit>(stream, gpu, args);
  run<4, kSplit>(stream, gpu, args);
}

}  // namespace

TileStack stack_of(const WeightMatrix& w, int64_t out_column) {
  CHECK(w.layout == kTiledLayout, "a matrix that is not on the GPU");
  const BlockShape shape =
      block_shape(w.format, w.scales.defined() ? w.scales.dtype() : DType::kF32, w.zeros.defined());
  return {.values = reinterpret_cast<const uint8_t*>(w.values.data()),
          .matrix_bytes = w.values.dim(1),
          .format = w.format,
          .scale_dtype = w.scales.defined() ? w.scales.dtype() : DType::kF32,
          .has_zeros = w.zeros.defined(),
          .n = static_cast<int>(w.n),
          .tiles = static_cast<int>(tiles_of(w.n)),
          .blocks = static_cast<int>(round_up(w.k, shape.inputs) / shape.inputs),
          .block_records = static_cast<int>(shape.records),
          .tail_bytes = static_cast<int>(shape.tail_bytes),
          .out_column = static_cast<int>(out_column)};
}

void stream_product(cudaStream_t stream, const Gpu& gpu, const StreamArgs& args) {
  if (args.rows == 0) return;
  switch (split_of(args)) {
    case 8:
      return run_split<8>(stream, gpu, args);
    case 4:
      return run_split<4>(stream, gpu, args);
    default:
      return run_split<2>(stream, gpu, args);
  }
}

}  // namespace pewter::cuda
