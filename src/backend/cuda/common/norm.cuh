// RMSNorm of a row by one block of threads. The sum of squares has one order whatever the size of
// the block, so that a product that normalises its rows itself has the bits of one that reads them.
#pragma once

#include "backend/cuda/common/kernel.cuh"
#include "backend/cuda/common/matrix.cuh"

namespace pewter::cuda {

constexpr int kNormLanes = 512;  // threads of the sum; fewer play several each
constexpr int kNormWarps = kNormLanes / kWarp;
constexpr int kNormQuads = 4;  // of four inputs a lane: rows up to 8,192

// A thread's share of a row: quads of inputs. kQuads: of each of the sum's threads it plays.
template <int kThreads, int kQuads>
struct NormShare {
  static constexpr int kTurns = kNormLanes / kThreads;
  float4 quad[kTurns][kQuads];

  static __device__ int index(int turn, int j) {  // first of its inputs
    return 4 * (static_cast<int>(threadIdx.x) + turn * kThreads + j * kNormLanes);
  }
  template <typename Load>
  __device__ NormShare(int width, const Load& load) {
#pragma unroll
    for (int turn = 0; turn < kTurns; ++turn)
#pragma unroll
      for (int j = 0; j < kQuads; ++j)
        if (index(turn, j) < width) quad[turn][j] = load(index(turn, j));
  }
};
template <int kThreads, int kQuads>
__device__ inline NormShare<kThreads, kQuads> norm_weights(int width, const float* weight) {
  return {width, [&](int i) { return *reinterpret_cast<const float4*>(weight + i); }};
}

// Of four inputs, the sum of squares; and normalised, as bf16.
__device__ inline float squares_of(const float4& x) {
  return fmaf(x.x, x.x, x.y * x.y) + fmaf(x.z, x.z, x.w * x.w);
}
__device__ inline uint2 normed_four(const float4& x, float scale, const float4& weight) {
  return make_uint2(pack_bf16(x.x * scale * (1.0f + weight.x), x.y * scale * (1.0f + weight.y)),
                    pack_bf16(x.z * scale * (1.0f + weight.z), x.w * scale * (1.0f + weight.w)));
}

// What a row is multiplied by, as scale_of(the sum of its squares) says. sum: of the squares of a
// thread's inputs, for each thread of the sum that it plays. scratch: kNormWarps floats, free for
// reuse after the next barrier. sync(): a barrier of the threads.
template <int kThreads, int kTurns, typename Sync, typename ScaleOf>
__device__ inline float norm_scale(const float (&sum)[kTurns], float* scratch, const Sync& sync,
                                   const ScaleOf& scale_of) {
  static_assert(kThreads * kTurns == kNormLanes);
  const int lane = threadIdx.x % kWarp, warp = static_cast<int>(threadIdx.x) / kWarp;
  if constexpr (kTurns == 2) {
    // warp_sum of both at once: after its first step half of the lanes go on with either.
    const bool is_second = lane >= kWarp / 2;
    float own = is_second ? sum[1] : sum[0];
    own += __shfl_xor_sync(0xFFFFFFFFu, is_second ? sum[0] : sum[1], kWarp / 2);
#pragma unroll
    for (int offset = kWarp / 4; offset > 0; offset /= 2)
      own += __shfl_xor_sync(0xFFFFFFFFu, own, offset);
    if (lane % (kWarp / 2) == 0) scratch[warp + (is_second ? kThreads / kWarp : 0)] = own;
  } else {
#pragma unroll
    for (int turn = 0; turn < kTurns; ++turn) {
      const float own = warp_sum(sum[turn]);
      if (lane == 0) scratch[warp + turn * (kThreads / kWarp)] = own;
    }
  }
  sync();
  float total = 0;
#pragma unroll
  for (int i = 0; i < kNormWarps; ++i) total += scratch[i];
  return scale_of(total);
}
// total / kWidth, in three instructions behind one another.
template <int kWidth>
__device__ inline float divide_by(float total) {
  constexpr float kInverse = 1.0f / kWidth;
  if constexpr ((kWidth & (kWidth - 1)) == 0) return total * kInverse;
  // A quotient off by one unit in the last place at most, and what it leaves, which is exact.
  const float near = total * kInverse;
  const float rest = fmaf(-static_cast<float>(kWidth), near, total);
  // An infinite total leaves what is no number.
  return rest == rest ? fmaf(rest, kInverse, near) : near;
}
// rsqrtf of what is no subnormal number.
__device__ inline float inverse_root(float x) {
  float root;
  asm("rsqrt.approx.ftz.f32 %0, %1;" : "=f"(root) : "f"(x));
  return root;
}

// load(i): inputs i … i + 3; store(i, normed pair, normed pair). width is a multiple of four and at
// most kNormLanes · 4 · kQuads. scratch, sync: norm_scale's.
template <int kThreads, int kQuads, typename Load, typename Store, typename Sync = BlockBarrier>
__device__ inline void norm_row(int width, float epsilon, const NormShare<kThreads, kQuads>& weight,
                                const Load& load, const Store& store, float* scratch,
                                const Sync& sync = {}) {
  using Share = NormShare<kThreads, kQuads>;
  constexpr int kTurns = Share::kTurns;
  const auto index = Share::index;
  const Share given(width, load);
  const auto& x = given.quad;
  float sum[kTurns] = {};
#pragma unroll
  for (int turn = 0; turn < kTurns; ++turn)
#pragma unroll
    for (int j = 0; j < kQuads; ++j)
      if (index(turn, j) < width) sum[turn] += squares_of(x[turn][j]);
  const float scale = norm_scale<kThreads>(sum, scratch, sync, [&](float total) {
    return rsqrtf(total / static_cast<float>(width) + epsilon);
  });
#pragma unroll
  for (int turn = 0; turn < kTurns; ++turn)
#pragma unroll
    for (int j = 0; j < kQuads; ++j)
      if (index(turn, j) < width)
        store(index(turn, j), normed_four(x[turn][j], scale, weight.quad[turn][j]));
}

// Whether a row can be normalised by quads, if it is no wider than kWidestQuadRow.
constexpr int kWidestQuadRow = 4 * kNormLanes * kNormQuads;
constexpr bool is_quad_row(int64_t width, int64_t stride, int64_t out_stride) {
  return width % 4 == 0 && stride % 4 == 0 && out_stride % 4 == 0;
}
// Widest row that products normalise themselves.
constexpr int kFusedNormWidth = 4 * kNormLanes * 2;

}  // namespace pewter::cuda
