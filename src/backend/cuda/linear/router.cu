// One block of threads a (tile of 16 outputs, eight rows), a warp every sixteenth block of k. Few
// rows are normalised by every block of threads, which costs less than a kernel of its own; one
// row's logits may leave as words, for whoever starts before this kernel ends (RouteWords). Bytes:
// the weights once per eight rows, from memory or L2. Limits: the latency of the rows; most weights
// of a warp have been requested before.

#include "backend/cuda/linear/parts.cuh"
#include "backend/cuda/linear/router.h"
#include "backend/cuda/moe/routing.cuh"

namespace pewter::cuda {
namespace {

constexpr int kNormRows = 4;
constexpr int kRows = 8;
constexpr int kWarps = 16, kThreads = kWarps * kWarp;
constexpr int kRingStages = 2;
constexpr int64_t kRingBytes = kWarps * kRingStages * kMostBlockBytes;
constexpr int64_t kOwnBytes = kWarps * (kSliceSums<kRows> * 4 + kRingStages * 8) + 256;

template <bool kNorm>
__global__ void __launch_bounds__(kThreads) router_kernel(const __grid_constant__ RouterProduct a) {
  extern __shared__ __align__(128) unsigned char shared_memory[];
  __shared__ uint64_t barriers[kWarps * kRingStages];
  __shared__ float sums[kWarps * kSliceSums<kRows>];
  // Who looks at words starts when nobody before this kernel may still change them.
  if (!a.words.are_used()) start_next();
  const Lane me;
  const int first_row = 8 * static_cast<int>(blockIdx.y);
  int tile = blockIdx.x;
  const bool second = tile >= a.w[0].tiles;
  const TileStack& w = second ? a.w[1] : a.w[0];
  if (second) tile -= a.w[0].tiles;
  Ring ring(shared_memory + me.warp * kRingStages * kMostBlockBytes,
            barriers + me.warp * kRingStages, kMostBlockBytes, kRingStages, me.lane);
  int ahead = me.warp;
  const auto refill = [&] {
    if (ahead >= w.blocks) return;
    ring.request(w.values + (static_cast<int64_t>(tile) * w.blocks + ahead) * w.block_bytes,
                 w.block_bytes, me.lane);
    ahead += kWarps;
  };
#pragma unroll 1
  for (int i = 0; i < kRingStages; ++i) refill();
  const auto norm_weight = norm_weights<kThreads, 2>(kNorm ? a.k : 0, a.norm_weight);
  const auto begin = [&] {
    wait_for_inputs();
    if (!a.words.are_used()) return;
    start_next();
    if (blockIdx.x == 0 && static_cast<int>(threadIdx.x) < a.chosen)
      send_pair(a.words.chosen + threadIdx.x, 0, 0);
  };
  const int count = min(8, a.rows - first_row);
  Inputs<kRows, kNorm> x;
  uint8_t* const rows = shared_memory + kWarps * kRingStages * kMostBlockBytes;
  if constexpr (kNorm) {
    __shared__ float scratch[2 * kNormWarps];
    // Rehearsed with what is here already, so that the instructions are when the rows are.
#pragma unroll 1
    for (bool rehearses = true;; rehearses = false) {
      if (!rehearses) begin();
      stage_normed_rows<kThreads>(rehearses ? a.norm_weight : a.norm_x, a.norm_stride,
                                  rehearses ? 1 : a.rows, a.k, norm_weight, a.epsilon, rows,
                                  scratch);
      __syncthreads();
      if (!rehearses) break;
    }
    point_at(x, me, count, a.k, false, [&](int r) { return rows + r * row_pitch(a.k); });
  } else {
    begin();
    x.k_end = readable_inputs(a.x, a.x_stride, a.k);
    point_at(x, me, count, a.k, false, [&](int r) {
      return reinterpret_cast<const uint8_t*>(a.x + (first_row + r) * a.x_stride);
    });
  }
  Sums<kRows> slice = {};
  const BlockFormat format = format_of(w);
#pragma unroll 1
  for (int block = me.warp; block < w.blocks; block += kWarps) {
    const uint32_t at = ring.wait();
    multiply_blocks<false, Formats::kPlain>(format, at, 1, block, 1, me, x, slice);
    ring.release();
    refill();
  }
  keep_sums<kRows>(slice, me, sums + me.warp * kSliceSums<kRows>);
  __syncthreads();
  const int output = static_cast<int>(threadIdx.x) % 16, row = static_cast<int>(threadIdx.x) / 16;
  if (row < count && tile * 16 + output < w.n) {
    const float logit = total_of<kRows, kWarps>(sums, output, row);
    const int column = w.out_column + tile * 16 + output;
    a.out[(first_row + row) * a.out_stride + column] = logit;
    if (a.words.are_used())
      send_word(a.words.logits + (second ? column : RouteWords::word_of(column, a.w[0].n)),
                order_of(logit));
  }
  if (!kNorm) return;
  // Behind the logits, which are wanted first, the rows for others, 256 inputs a warp; blocks of
  // threads share them.
  const int pieces = (a.k + 255) / 256;
  for (int i = static_cast<int>(blockIdx.x) + me.warp * static_cast<int>(gridDim.x);
       i < a.rows * pieces; i += kWarps * static_cast<int>(gridDim.x)) {
    const int r = i / pieces, at = i % pieces * 256 + me.lane * 8;
    uint4 eight{};
    if (at < a.k) {
      eight = *reinterpret_cast<const uint4*>(rows + r * row_pitch(a.k) + 2 * at);
      *reinterpret_cast<uint4*>(a.x + r * a.x_stride + at) = eight;
    }
    if (a.codes != nullptr) code_inputs(eight, at, at < a.k, a.k, a.codes + r * row_pitch(a.k));
  }
}

}  // namespace

bool can_norm(int64_t rows, int64_t width, int64_t stride) {
  const int64_t shared = kOwnBytes + kRingBytes + rows * row_pitch(static_cast<int>(width));
  return rows <= kNormRows && width <= kFusedNormWidth && is_quad_row(width, stride, 4) &&
         shared <= kMaxShared;
}

bool can_route_rows(int64_t k) { return k % 128 == 0; }

void router_product(cudaStream_t stream, const RouterProduct& args) {
  const dim3 grid(static_cast<unsigned>(args.w[0].tiles + args.w[1].tiles),
                  static_cast<unsigned>((args.rows + 7) / 8));
  const bool norm = args.norm_x != nullptr;
  CHECK(!is_coded(args.w[0].format) && !is_coded(args.w[1].format), "a router of codes");
  const int64_t bytes = kRingBytes + (norm ? int64_t{args.rows} * row_pitch(args.k) : 0);
  launch(stream, grid, dim3(kThreads), static_cast<size_t>(bytes),
         norm ? router_kernel<true> : router_kernel<false>, args);
}

}  // namespace pewter::cuda
