// One block of threads a (tile of 16 outputs, eight rows), a warp every eighth block of k. Few rows
// are normalised by every block of threads, which costs less than a kernel of its own. Bytes: the
// weights once per eight rows, from memory or L2. Limits: the latency of the rows; most weights of
// a warp have been requested before.

#include "backend/cuda/linear/parts.cuh"
#include "backend/cuda/linear/router.h"

namespace pewter::cuda {
namespace {

constexpr int kNormRows = 4;

template <bool kNorm>
__global__ void __launch_bounds__(kStreamThreads)
    router_kernel(const __grid_constant__ RouterProduct a) {
  extern __shared__ __align__(128) unsigned char shared_memory[];
  __shared__ uint64_t barriers[kStreamWarps * kRingStages];
  __shared__ float sums[kStreamWarps * kSliceSums<1>];
  start_next();
  const Lane me;
  const int first_row = 8 * static_cast<int>(blockIdx.y);
  int tile = blockIdx.x;
  const bool second = tile >= a.w[0].tiles;
  const TileStack& w = second ? a.w[1] : a.w[0];
  if (second) tile -= a.w[0].tiles;
  Ring ring(shared_memory + me.warp * kRingStages * kRingStageBytes,
            barriers + me.warp * kRingStages, me.lane);
  int ahead = me.warp;
  const auto refill = [&] {
    if (ahead >= w.blocks) return;
    ring.request(w.values + (static_cast<int64_t>(tile) * w.blocks + ahead) * w.block_bytes,
                 w.block_bytes, me.lane);
    ahead += kStreamWarps;
  };
#pragma unroll 1
  for (int i = 0; i < kRingStages; ++i) refill();
  wait_for_inputs();
  const int count = min(8, a.rows - first_row);
  Inputs<1, kNorm> x;
  if constexpr (kNorm) {
    __shared__ float scratch[2 * kNormWarps];
    uint8_t* const rows = shared_memory + kStreamWarps * kRingStages * kRingStageBytes;
    stage_normed_rows<kStreamThreads>(a.norm_x, a.norm_stride, a.rows, a.k, a.norm_weight,
                                      a.epsilon, rows, scratch);
    __syncthreads();
    // The rows for others, 256 inputs a warp; blocks of threads share them.
    const int pieces = (a.k + 255) / 256;
    for (int i = static_cast<int>(blockIdx.x) + me.warp * static_cast<int>(gridDim.x);
         i < a.rows * pieces; i += kStreamWarps * static_cast<int>(gridDim.x)) {
      const int row = i / pieces, at = i % pieces * 256 + me.lane * 8;
      uint4 eight{};
      if (at < a.k) {
        eight = *reinterpret_cast<const uint4*>(rows + row * row_pitch(a.k) + 2 * at);
        *reinterpret_cast<uint4*>(a.x + row * a.x_stride + at) = eight;
      }
      if (a.codes != nullptr) code_inputs(eight, at, at < a.k, a.k, a.codes + row * row_pitch(a.k));
    }
    point_at(x, me, count, a.k, [&](int r) { return rows + r * row_pitch(a.k); });
  } else {
    x.k_end = readable_inputs(a.x, a.x_stride, a.k);
    point_at(x, me, count, a.k, [&](int r) {
      return reinterpret_cast<const uint8_t*>(a.x + (first_row + r) * a.x_stride);
    });
  }
  Sums<1> slice = {};
  const BlockFormat format = format_of(w);
#pragma unroll 1
  for (int block = me.warp; block < w.blocks; block += kStreamWarps) {
    const uint32_t at = ring.wait();
    multiply_blocks<1, kNorm>(format, at, 1, block, 1, me, x, slice);
    ring.release();
    refill();
  }
  keep_sums<1>(slice, me, sums + me.warp * kSliceSums<1>);
  __syncthreads();
  const int output = static_cast<int>(threadIdx.x) % 16, row = static_cast<int>(threadIdx.x) / 16;
  if (row < count && tile * 16 + output < w.n)
    a.out[(first_row + row) * a.out_stride + w.out_column + tile * 16 + output] =
        total_of<1>(sums, output, row);
}

}  // namespace

bool can_norm(int64_t rows, int64_t width, int64_t stride) {
  return rows <= kNormRows && width <= kFusedNormWidth && is_quad_row(width, stride, 4);
}

bool can_route_rows(int64_t k) { return k % 128 == 0; }

void router_product(cudaStream_t stream, const RouterProduct& args) {
  const dim3 grid(static_cast<unsigned>(args.w[0].tiles + args.w[1].tiles),
                  static_cast<unsigned>((args.rows + 7) / 8));
  const bool norm = args.norm_x != nullptr;
  CHECK(!is_coded(args.w[0].format) && !is_coded(args.w[1].format), "a router of codes");
  const int64_t bytes = kStreamWarps * kRingStages * kRingStageBytes +
                        (norm ? int64_t{args.rows} * row_pitch(args.k) : 0);
  launch(stream, grid, dim3(kStreamThreads), static_cast<size_t>(bytes),
         norm ? router_kernel<true> : router_kernel<false>, args);
}

}  // namespace pewter::cuda
