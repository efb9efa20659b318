// Decode attention over stretches of positions.
//
// Split of work: an item is one stretch of one KV head of one sequence and up to 16·kGroups query
// rows (a query row is a head of the KV head's group in one of the step's rows). There are as many
// blocks of threads as the GPU holds at once, two on a multiprocessor of the H200, and each has its
// items of the step, long ones first; the next item's tiles are requested before it is done with
// one. Its eight warps share each tile of 32 keys and values. 8 / kGroups of them serve 16 query
// rows: they share out the tile's positions, or with one group the dimensions as well, exchange the
// scores, and then each owns 32·kGroups of the head's dimensions. merge.cu adds the stretches.
//
// The order of a row's sums depends on positions alone: a score is the sum of two halves of the
// dimensions, values are added in steps of 16 positions, stretches as merge.cu says.
//
// Bytes: keys and values of the sequence once per 16·kGroups query rows, partial results of a
// stretch (query rows × 260 × 4) written and read once. Precision: bf16 q, k, v and probabilities,
// f32 scores and sums.
//
// Limits: memory, where every multiprocessor has work for long: one more position costs what it
// takes at 3.85 TB/s on an H200, 90 % of a copy. Before that come 12 µs of beginning and end;
// behind 131,072 positions one row takes 82 µs, and 6 in the merge
// (bench/results/h200/attention.csv). For short contexts launch and latency: 1 µs for a block's
// second tile, 2 for each one it has to wait for. From four rows of 16 heads on shared memory and
// the barriers between a tile's steps.

#include <algorithm>

#include "backend/cuda/attention/stretch.cuh"

namespace pewter::cuda {
namespace {

// Rows that prepare_kernel has left in memory and in the cache.
struct PreparedRows {
  static constexpr bool kAllCached = true, kRehearses = false;
  __device__ void sync() const { __syncthreads(); }
  __device__ void wait() const { wait_for_inputs(); }
  __device__ void prepare(const __nv_bfloat16*, const void*, bool) const {}
};

template <int kGroups>
__global__ void __launch_bounds__(kStretchThreads, register_blocks(2))
    stretch_kernel(const __grid_constant__ AttendArgs a) {
  extern __shared__ __align__(16) unsigned char shared_memory[];
  start_next();
  const StretchBlocks blocks{static_cast<int>(blockIdx.x), static_cast<int>(gridDim.x), true};
  attend_items<StretchShares<kGroups>>(a, blocks, shared_memory, PreparedRows{});
}

template <int kGroups>
int resident_blocks() {  // on a multiprocessor
  int blocks = 0;
  set_kernel_limits(reinterpret_cast<const void*>(stretch_kernel<kGroups>),
                    StretchShares<kGroups>::kBytes);
  CUDA_CHECK(cudaOccupancyMaxActiveBlocksPerMultiprocessor(
      &blocks, stretch_kernel<kGroups>, kStretchThreads, StretchShares<kGroups>::kBytes));
  return blocks;
}

template <int kGroups>
void run(cudaStream_t stream, const Gpu& gpu, const AttendArgs& args, int tiles) {
  static const int resident = resident_blocks<kGroups>();
  // A block that steps over whole stretches keeps its KV head and query rows.
  const int tasks = args.shape.kv_heads * ((tiles + kGroups - 1) / kGroups);
  const int most = static_cast<int>(args.batch.page_table_stride) * kPagePositions;
  const int64_t items = int64_t{stretches_of(most)} * tasks * args.batch.sequences;
  const int64_t room = std::max(resident * gpu.multiprocessors / tasks, 1) * tasks;
  launch(stream, dim3(static_cast<unsigned>(std::min(items, room))), dim3(kStretchThreads),
         StretchShares<kGroups>::kBytes, stretch_kernel<kGroups>, args);
}

}  // namespace

bool can_split(const AttentionShape& shape) { return shape.head_dim == kHead; }

int64_t split_partial_floats(const AttentionShape& shape, int64_t positions, int64_t sequences,
                             int64_t rows) {
  // Sequences share the positions. Stretches grow, so most are there when all have as many.
  const int64_t each = (positions + sequences - 1) / sequences;
  const int64_t stretches = sequences * (stretches_of(static_cast<int>(each)) + 1);
  return stretches * rows * shape.query_heads * kPartial;
}

void attend_split(cudaStream_t stream, const Gpu& gpu, const AttendArgs& args) {
  const int heads = args.shape.query_heads / args.shape.kv_heads;
  const int tiles = (args.most_rows * heads + 15) / 16;
  if (tiles == 1)
    run<1>(stream, gpu, args, tiles);
  else if (tiles <= 4)  // twice, for up to four: faster behind fewer than 30,000 positions
    run<2>(stream, gpu, args, tiles);
  else  // more query rows would need more shared memory than every GPU has
    run<4>(stream, gpu, args, tiles);
  merge(stream, args);
}

}  // namespace pewter::cuda
