// Down matrices of the experts, for up to 64 rows that are routed already, and the sum over a row's
// experts by a kernel behind. experts_down.cu is the plain twin.
//
// Split of work: each block of threads has a stretch of all experts' tiles, two or three experts'
// at most. A ninth warp requests the tiles, some at a time, from before the up products end, and an
// expert's rows behind that. Eight warps share a tile by blocks of k; where it has four blocks,
// they take two tiles. Rows are coded where they arrive and taken into registers. Bytes: the
// matrices of the experts met, once per four rows of theirs; results of rows and experts as f32,
// which stay in L2. Precision and order of sums: the twin's. Limits: memory: with the sum 70 % of
// copy bandwidth for 4 rows of the 122B on an H200, 81 % for 8, 90 % for 16 and for 32 sequences.

#include <algorithm>

#include "backend/cuda/linear/flow.cuh"
#include "backend/cuda/linear/held.cuh"
#include "backend/cuda/linear/parts.cuh"
#include "backend/cuda/moe/experts_down_many.h"
#include "backend/cuda/moe/row_blocks.cuh"

namespace pewter::cuda {
namespace {

constexpr int kRows = block_rows(1);
constexpr int kWarpTiles = 3;  // of a warp at a time
constexpr int kBufferSums = kWarpTiles * kFlowWarps * kSliceSums<kRows>;

struct Plan {
  int stage_bytes, stages;
  int shared_tiles, routed_tiles;  // that a stage holds
  int width;                       // of rows in shared memory
  RoleSplit split;
};

// What a stage holds: some tiles of a matrix.
struct Task {
  int tile, tiles;    // none: the end
  bool begins, ends;  // the rows they meet
  RowList rows;       // when it begins
};

// Barriers of the rows: full when they have come, empty when all warps have read them.
struct RowsMemory {
  uint64_t full, empty;
};

// Requests tiles begin … end − 1 of a block of threads and the rows they meet. By a warp, of which
// one lane asks. The tiles of the first stages do not wait for the kernel before.
struct Requests {
  const ExpertsDown& a;
  const Plan& plan;
  const RowBlocks& table;
  uint8_t* place;  // of rows in shared memory
  uint32_t full, empty;
  uint32_t phase = 1;

  // Whole rows of `width` bytes.
  __device__ void request_rows(const RowList& list) {
    if (table.lane != 0) return;
    const bool shared = table.shared;
    const int bytes = 2 * (shared ? a.shared_k : a.k), pitch = row_pitch(plan.width);
    wait_barrier(empty, phase);
    phase ^= 1;
    expect_bytes(full, list.count * bytes);
#pragma unroll
    for (int r = 0; r < kRows; ++r)
      if (r < list.count)
        copy_bulk(
            shared_address(place) + r * pitch,
            shared ? a.shared_x + list.row[r] * a.shared_x_stride : a.x + list.row[r] * a.x_stride,
            bytes, full);
  }

  __device__ void run(int begin, int end, Flow<Task>& flow) {
    const bool shared = table.shared;
    const TileStack& w = shared ? a.shared : a.w;
    const int tiles = w.tiles, tile_bytes = w.blocks * w.block_bytes;
    const int most = shared ? plan.shared_tiles : plan.routed_tiles;
    int block = begin / tiles, tile = begin - block * tiles, sent = 0;
    bool waited = false;
    RowBlock next = begin < end ? table.block(block) : RowBlock{};
#pragma unroll 1
    for (int unit = begin; unit < end; ++block, tile = 0) {
      const RowBlock rows = next;
      const int last = min(end, unit + tiles - tile);
      const RowList list = table.rows_of(rows);
      if (last < end) next = table.block(block + 1);
      const uint8_t* from =
          w.values + max(rows.matrix, 0) * w.matrix_bytes + static_cast<int64_t>(tile) * tile_bytes;
      bool asked = false, begins = true;
      const auto ask = [&] {
        if (asked) return;
        asked = true;
        if (!waited) wait_for_inputs();
        waited = true;
        request_rows(list);
      };
      if (waited) ask();
#pragma unroll 1
      while (unit < last) {
        if (sent == flow.count) ask();
        const int count = min(most, last - unit);
        if (table.lane == 0) {
          flow.send({.tile = tile,
                     .tiles = count,
                     .begins = begins,
                     .ends = unit + count == last,
                     .rows = list},
                    count * tile_bytes);
          flow.copy(0, from, count * tile_bytes);
        }
        flow.next();
        ++sent;
        from += count * tile_bytes;
        unit += count, tile += count;
        begins = false;
      }
      ask();
    }
    if (table.lane == 0) flow.send({.tiles = 0}, 0);
  }
};

// kBlocks: of a tile of int4, 4 or 8.
template <int kBlocks>
__global__ void __launch_bounds__(kFlowThreads, register_blocks(kResidentBlocks))
    many_kernel(const __grid_constant__ ExpertsDown a, const __grid_constant__ Plan plan) {
  constexpr int kGroups = kFlowWarps / kBlocks;  // of warps that share a tile
  extern __shared__ __align__(128) unsigned char shared_memory[];
  __shared__ FlowMemory<Task> flow_memory;
  __shared__ RowsMemory rows_memory;
  start_next();
  const Lane me;
  const int thread = static_cast<int>(threadIdx.x), index = static_cast<int>(blockIdx.x);
  if (!a.has_groups) wait_for_inputs();
  const int grid = static_cast<int>(gridDim.x);
  RowBlocks table(a.groups, me.lane, me.warp == kFlowWarps);
  const int routed_blocks = __ldcg(a.groups.block_count) - a.groups.shared_blocks();
  const int shared_shares = plan.split.shared_shares(routed_blocks, grid);
  const bool shared = table.shared = index < shared_shares;
  const TileStack& w = shared ? a.shared : a.w;
  Flow<Task> flow(flow_memory, shared_memory, plan.stage_bytes, plan.stages);
  auto* const sums = reinterpret_cast<float*>(shared_memory + plan.stages * plan.stage_bytes);
  auto* const rows = reinterpret_cast<uint8_t*>(sums + 2 * kBufferSums);
  const uint32_t rows_full = shared_address(&rows_memory.full),
                 rows_empty = shared_address(&rows_memory.empty);
  if (thread == 0) {
    init_barrier<1>(rows_full);
    init_barrier<kFlowWarps>(rows_empty);
    publish_barriers();
  }
  __syncthreads();

  if (me.warp == kFlowWarps) {
    const Shares share = shared ? Shares::of(plan.split.shared_units, shared_shares)
                                : Shares::of(routed_blocks * w.tiles, grid - shared_shares);
    const int place = index - (shared ? 0 : shared_shares);
    Requests{a, plan, table, rows, rows_full, rows_empty}.run(share.begin(place),
                                                              share.begin(place + 1), flow);
    return;
  }

  const bool coded = is_coded(w.format);
  const BlockFormat format = format_of(w);
  const int pitch = row_pitch(plan.width), tile_bytes = w.blocks * w.block_bytes;
  // Of a tile's blocks, this warp's first; of a stage's tiles, its first and its step.
  const int slice = coded ? me.warp % kBlocks : me.warp, slices = coded ? kBlocks : kFlowWarps;
  const int first_tile = coded ? me.warp / kBlocks : 0, tile_step = coded ? kGroups : 1;
  const int64_t first_shared = shared ? int64_t{a.groups.rows} * a.groups.top_k : 0;
  uint32_t rows_phase = 0;
  int buffer = 0, count = 0;
  float* out = nullptr;  // the row's of this thread
  Inputs<kRows, true> x;
  HeldBlock held;
#pragma unroll 1
  for (;;) {
    const Task& task = flow.receive();
    const int tile = task.tile, tiles = task.tiles;
    const bool ends = task.ends;
    if (tiles == 0) break;
    if (task.begins) {
      count = task.rows.count;
      out = a.outputs + (first_shared + task.rows.row[thread / 16 % kRows]) * a.hidden;
      wait_barrier(rows_full, rows_phase);
      rows_phase ^= 1;
      point_at(x, me, count, plan.width, coded, [&](int r) { return rows + r * pitch; });
      if (coded) {
        if (me.warp < kBlocks)
#pragma unroll
          for (int r = 0; r < kRows; r += 2) {  // two rows' block at once
            if (r >= count) break;
            const int row = r + me.lane / 16, at = 128 * me.warp + me.lane % 16 * 8;
            uint8_t* const to = rows + min(row, count - 1) * pitch;
            const uint4 eight = *reinterpret_cast<const uint4*>(to + 2 * at);
            __syncwarp();
            code_inputs(eight, at, row < count, plan.width, to);
          }
        if (kGroups > 1)
          sync_flow();
        else
          __syncwarp();
        held.load(x, slice, me);
        publish_writes();
        __syncwarp();
        if (me.lane == 0) arrive(rows_empty);
      }
    }
    float* const to = sums + buffer * kBufferSums;
    const uint32_t at = flow.address() + slice * format.block_bytes;
    const auto keep = [&](int i, const Sums<kRows>& sum) {
      keep_sums<kRows>(sum, me, to + (i * slices + slice) * kSliceSums<kRows>);
    };
    if (coded) {
      HeldWeights weights[kWarpTiles];
#pragma unroll
      for (int j = 0; j < kWarpTiles; ++j)
        if (const int i = first_tile + j * tile_step; i < tiles)
          weights[j].load(at + i * tile_bytes, me);
#pragma unroll
      for (int j = 0; j < kWarpTiles; ++j) {
        const int i = first_tile + j * tile_step;
        if (i >= tiles) break;
        Sums<kRows> sum = {};
        multiply_held(format, weights[j], held, sum);
        keep(i, sum);
      }
    } else {
#pragma unroll 1
      for (int i = 0; i < tiles; ++i) {
        Sums<kRows> sum = {};
        multiply_blocks<false, Formats::kPlain>(
            format, at + i * tile_bytes, blocks_of(slice, w.blocks), slice, kFlowWarps, me, x, sum);
        keep(i, sum);
      }
      if (ends) {
        __syncwarp();
        if (me.lane == 0) arrive(rows_empty);
      }
    }
    flow.release();
    buffer ^= 1;
    sync_flow();
#pragma unroll 1
    for (int i = thread; i < tiles * kSliceSums<kRows>; i += kStreamThreads) {
      const int output = i % 16, row = i / 16 % kRows, of = i / kSliceSums<kRows>;
      const int n = (tile + of) * 16 + output;
      if (row >= count || n >= w.n) continue;
      const float* const from = to + of * slices * kSliceSums<kRows>;
      out[n] =
          coded ? total_of<kRows, kBlocks>(from, output, row) : total_of<kRows>(from, output, row);
    }
  }
}

// The sum over a row's experts. A thread has four outputs of a row.
constexpr int kSumThreads = 128, kTogether = 8;

__global__ void __launch_bounds__(kSumThreads) sum_kernel(const __grid_constant__ ExpertsDown a) {
  start_next();
  const int row = static_cast<int>(blockIdx.y), top_k = a.groups.top_k;
  const int n = 4 * static_cast<int>(blockIdx.x * kSumThreads + threadIdx.x);
  if (n >= a.w.n) return;
  const int64_t at = static_cast<int64_t>(row) * a.hidden + n;
  const auto four = [](const float* from) { return *reinterpret_cast<const float4*>(from); };
  wait_for_inputs();
  const float* const results = a.outputs + static_cast<int64_t>(row) * top_k * a.hidden + n;
  const float4 shared =
      four(a.outputs + (static_cast<int64_t>(a.groups.rows) * top_k + row) * a.hidden + n);
  const float shared_weight = a.shared_weight[row];
  float4 before = {}, sum = {};
  if (a.residual != nullptr) before = four(a.residual + at);
  const auto add = [&](float weight, const float4& value) {
    sum.x = fmaf(weight, value.x, sum.x);
    sum.y = fmaf(weight, value.y, sum.y);
    sum.z = fmaf(weight, value.z, sum.z);
    sum.w = fmaf(weight, value.w, sum.w);
  };
#pragma unroll 1
  for (int first = 0; first < top_k; first += kTogether) {
    float4 value[kTogether];
    float weight[kTogether];
#pragma unroll
    for (int i = 0; i < kTogether; ++i)
      if (first + i < top_k) {
        value[i] = four(results + static_cast<int64_t>(first + i) * a.hidden);
        weight[i] = a.weight[row * top_k + first + i];
      }
#pragma unroll
    for (int i = 0; i < kTogether; ++i)
      if (first + i < top_k) add(weight[i], value[i]);
  }
  add(shared_weight, shared);
  *reinterpret_cast<float4*>(a.partial + at) = sum;
  if (a.residual == nullptr) return;
  *reinterpret_cast<float4*>(a.residual + at) = {before.x + sum.x, before.y + sum.y,
                                                 before.z + sum.z, before.w + sum.w};
}

// Whether rows of k inputs can be copied to shared memory.
bool can_copy(const __nv_bfloat16* x, int64_t stride, int k) {
  return reinterpret_cast<uintptr_t>(x) % 16 == 0 && stride % 8 == 0 && k % 128 == 0;
}

}  // namespace

bool down_many(cudaStream_t stream, const Gpu& gpu, const ExpertsDown& args) {
  const Grouping& groups = args.groups;
  const TileStack &w = args.w, &shared = args.shared;
  // Tiles of int4 have as many blocks as the kernel is made for.
  int blocks = 8;
  for (const TileStack* stack : {&w, &shared})
    if (is_coded(stack->format)) blocks = stack->blocks;
  const auto fits = [&](const TileStack& of) {
    return is_common(of) && (!is_coded(of.format) || of.blocks == blocks);
  };
  if (!gpu.has_bulk_copies || args.route.logits != nullptr || groups.rows > kFewRows ||
      (blocks != 4 && blocks != 8) || !fits(w) || !fits(shared) || w.n % 4 != 0 ||
      args.hidden % 4 != 0 || !can_copy(args.x, args.x_stride, args.k) ||
      !can_copy(args.shared_x, args.shared_x_stride, args.shared_k))
    return false;
  const int most_tiles = kWarpTiles * kFlowWarps / blocks;
  const auto tile_bytes = [](const TileStack& of) { return of.blocks * of.block_bytes; };
  const int stage_bytes = static_cast<int>(
      round_up(std::max({is_coded(w.format) ? most_tiles * tile_bytes(w) : tile_bytes(w),
                         tile_bytes(shared)}),
               128));
  const auto tiles_of_stage = [&](const TileStack& of) {
    return std::min(is_coded(of.format) ? most_tiles : kWarpTiles, stage_bytes / tile_bytes(of));
  };
  const int width = std::max(args.k, args.shared_k);
  constexpr int kOwn = sizeof(FlowMemory<Task>) + sizeof(RowsMemory) + 64;
  const int fixed = 2 * kBufferSums * 4 + kRows * row_pitch(width);
  const int stages =
      std::min((static_cast<int>(kMaxShared) - kOwn - fixed) / stage_bytes, kMostFlowStages);
  if (stages < 2) return false;
  const int bytes = stages * stage_bytes + fixed;

  const int most = gpu.multiprocessors * resident_blocks(gpu, bytes + kOwn, kResidentBlocks);
  const int64_t pairs = int64_t{groups.rows} * groups.top_k;
  const int shared_units = groups.shared_blocks() * shared.tiles;
  const int grid = static_cast<int>(std::min<int64_t>(most, pairs * w.tiles + shared_units));
  const auto cost = [&](const TileStack& of) {
    return byte_cost(of.format) * static_cast<float>(int64_t{of.tiles} * tile_bytes(of));
  };
  const Plan plan{
      .stage_bytes = stage_bytes,
      .stages = stages,
      .shared_tiles = tiles_of_stage(shared),
      .routed_tiles = tiles_of_stage(w),
      .width = width,
      .split = {.shared_cost = static_cast<float>(groups.shared_blocks()) * cost(shared),
                .block_cost = cost(w),
                .shared_units = shared_units}};
  launch(stream, dim3(static_cast<unsigned>(grid)), dim3(kFlowThreads), static_cast<size_t>(bytes),
         blocks == 8 ? many_kernel<8> : many_kernel<4>, args, plan);
  launch(stream,
         dim3(static_cast<unsigned>((w.n + 4 * kSumThreads - 1) / (4 * kSumThreads)),
              static_cast<unsigned>(groups.rows)),
         dim3(kSumThreads), 0, sum_kernel, args);
  return true;
}

}  // namespace pewter::cuda
