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

// load(i): inputs i … i + 3; store(i, normed pair, normed pair). width is a multiple of four and at
// most kNormLanes · 4 · kQuads. scratch: kNormWarps floats, free for reuse after the next barrier.
// sync(): a barrier of the threads.
template <int kThreads, int kQuads, typename Load, typename Store, typename Sync = BlockBarrier>
__device__ inline void norm_row(int width, float epsilon, const NormShare<kThreads, kQuads>& weight,
                                const Load& load, const Store& store, float* scratch,
                                const Sync& sync = {}) {
  using Share = NormShare<kThreads, kQuads>;
  constexpr int kTurns = Share::kTurns;
  const int lane = threadIdx.x % kWarp;
  const auto index = Share::index;
  const Share given(width, load);
  const auto& x = given.quad;
  const auto& w = weight.quad;
#pragma unroll
  for (int turn = 0; turn < kTurns; ++turn) {
    float sum = 0;
#pragma unroll
    for (int j = 0; j < kQuads; ++j) {
      const float4& four = x[turn][j];
      if (index(turn, j) < width)
        sum += fmaf(four.x, four.x, four.y * four.y) + fmaf(four.z, four.z, four.w * four.w);
    }
    sum = warp_sum(sum);
    if (lane == 0) scratch[(static_cast<int>(threadIdx.x) + turn * kThreads) / kWarp] = sum;
  }
  sync();
  float total = 0;
#pragma unroll
  for (int i = 0; i < kNormWarps; ++i) total += scratch[i];
  const float scale = rsqrtf(total / static_cast<float>(width) + epsilon);
#pragma unroll
  for (int turn = 0; turn < kTurns; ++turn)
#pragma unroll
    for (int j = 0; j < kQuads; ++j)
      if (index(turn, j) < width) {
        const float4 &four = x[turn][j], &by = w[turn][j];
        store(
            index(turn, j),
            make_uint2(pack_bf16(four.x * scale * (1.0f + by.x), four.y * scale * (1.0f + by.y)),
                       pack_bf16(four.z * scale * (1.0f + by.z), four.w * scale * (1.0f + by.w))));
      }
}

// Whether a row can be normalised by quads, if it is no wider than kWidestQuadRow.
constexpr int kWidestQuadRow = 4 * kNormLanes * kNormQuads;
constexpr bool is_quad_row(int64_t width, int64_t stride, int64_t out_stride) {
  return width % 4 == 0 && stride % 4 == 0 && out_stride % 4 == 0;
}
// Widest row that products normalise themselves.
constexpr int kFusedNormWidth = 4 * kNormLanes * 2;

}  // namespace pewter::cuda
