// A head of one row before attention, by one warp: norm and rotation. Lane l has dimensions l +
// 32·j.
#pragma once

#include "backend/cuda/attention/attention.h"
#include "backend/cuda/common/kernel.cuh"
#include "backend/device.h"

namespace pewter::cuda {

constexpr int kMostHead = 256;                // dimensions
constexpr int kHeadEach = kMostHead / kWarp;  // of a lane

// Where a position's key or value of a sequence is in the cache, in elements.
__device__ inline int64_t element_of(const AttentionBatch& b, const AttentionShape& shape,
                                     int64_t page_bytes, int sequence, int position, int kv_head) {
  constexpr int kPositions = static_cast<int>(kPageTokens);
  const int64_t page = b.page_table[sequence * b.page_table_stride + position / kPositions];
  return page * (page_bytes / 2) +
         (static_cast<int64_t>(kv_head) * kPositions + position % kPositions) * shape.head_dim;
}

// How a row's heads are turned: by kPairs angles of each lane.
template <int kPairs>
struct Rotation {
  float sine[kPairs], cosine[kPairs];

  // position(axis): the row's.
  template <typename Position>
  __device__ Rotation(const PrepareArgs& a, const Position& position) {
    const int lane = static_cast<int>(threadIdx.x) % kWarp;
#pragma unroll
    for (int j = 0; j < kPairs; ++j)
      if (const int i = lane + j * kWarp; i < a.rotary_dim / 2)
        sincosf(static_cast<float>(position(a.axis[i])) * a.inverse_frequency[i], &sine[j],
                &cosine[j]);
  }
};

// given · RMS norm, turned: into x, of which a lane then has its dimensions.
template <int kPairs>
__device__ inline void prepare_head(const PrepareArgs& a, int d,
                                    const __nv_bfloat16 (&given)[kHeadEach],
                                    const float (&weight)[kHeadEach],
                                    const Rotation<kPairs>& rotation, float* x) {
  const int lane = static_cast<int>(threadIdx.x) % kWarp, half = a.rotary_dim / 2;
  float sum = 0;
#pragma unroll
  for (int j = 0; j < kHeadEach; ++j)
    if (lane + j * kWarp < d) sum = fmaf(to_float(given[j]), to_float(given[j]), sum);
  const float scale = 1.0f / sqrtf(warp_sum(sum) / static_cast<float>(d) + a.epsilon);
#pragma unroll
  for (int j = 0; j < kHeadEach; ++j)
    if (const int i = lane + j * kWarp; i < d)
      x[i] = to_float(given[j]) * (scale * (1.0f + weight[j]));
  __syncwarp();
#pragma unroll
  for (int j = 0; j < kPairs; ++j) {
    const int i = lane + j * kWarp;
    if (i >= half) continue;
    const float low = x[i], high = x[i + half];
    x[i] = low * rotation.cosine[j] - high * rotation.sine[j];
    x[i + half] = high * rotation.cosine[j] + low * rotation.sine[j];
  }
  __syncwarp();
}

}  // namespace pewter::cuda
