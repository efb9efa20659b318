// What blocks of eight warps do with a tile of 32 keys and values: scores, softmax, weighted sums.
// The parts of split.cu and net.cu.
#pragma once

#include "backend/cuda/attention/partials.cuh"
#include "backend/cuda/common/bulk.cuh"
#include "backend/cuda/common/matrix.cuh"
#include "backend/device.h"

namespace pewter::cuda {

constexpr int kPagePositions = static_cast<int>(kPageTokens);
constexpr int kTile = 32;          // positions
constexpr int kPitch = kHead + 8;  // of a row in shared memory: 16 bytes apart in banks
constexpr int kStretchWarps = 8, kStretchThreads = kStretchWarps * kWarp;

using Tile = __nv_bfloat16[kTile][kPitch];

// Of a query row: 32 scores, then as many weights in bf16, and what the sums so far shrink by; in
// the end the largest score and the total.
struct Exchange {
  float scores[kTile], shrink, unused, largest, total;
};

// 16 bytes, or zeros. They are the first to leave the L2 cache (createpolicy's evict_first).
__device__ inline void copy_async(uint32_t to, const void* from, bool wanted) {
  constexpr uint64_t kOnce = 0x12F0000000000000;
  asm volatile("cp.async.cg.shared.global.L2::cache_hint [%0], [%1], 16, %2, %3;" ::"r"(to),
               "l"(from), "r"(wanted ? 16 : 0), "l"(kOnce)
               : "memory");
}

__device__ inline void load_matrices(uint32_t (&r)[4], const void* at) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
               : "r"(shared_address(at)));
}
__device__ inline void load_matrices_transposed(uint32_t (&r)[4], const void* at) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
               : "r"(shared_address(at)));
}
__device__ inline float power_of_two(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

// Registers of 16 query rows and 16 dimensions for the matrix instructions.
using Fragment = uint32_t[4];

// Sums over a half of the dimensions, or both, of 16 query rows and the positions of the tile from
// `keys` on.
template <int kHalves, int kColumns, typename Query>
__device__ inline void score(float (&scores)[kHalves][kColumns][4], const Query& query,
                             const __nv_bfloat16* keys) {
  const int lane = threadIdx.x % kWarp;
#pragma unroll
  for (int i = 0; i < kHalves * kColumns * 4; ++i)
    scores[i / 4 / kColumns][i / 4 % kColumns][i % 4] = 0;
  keys += lane % 8 * kPitch + lane / 8 * 8;
#pragma unroll
  for (int i = 0; i < kHead / 64; ++i)
#pragma unroll
    for (int half = 0; half < kHalves; ++half) {
      Fragment q[2], k;
      query(q[0], half, 2 * i);
      query(q[1], half, 2 * i + 1);
#pragma unroll
      for (int n = 0; n < kColumns; ++n) {
        load_matrices(k, keys + 8 * n * kPitch + half * (kHead / 2) + 32 * i);
        multiply_add(scores[half][n], q[0], k[0], k[1]);
        multiply_add(scores[half][n], q[1], k[2], k[3]);
      }
    }
}

// Online softmax over the tiles of a stretch: 2·kGroups query rows a warp, a half of its lanes each
// with two positions a lane.
template <int kGroups>
struct Softmax {
  int limit[kGroups];  // positions a row sees: below this
  float largest[kGroups], total[kGroups];

  static __device__ int row(int i) {
    return (threadIdx.x / kWarp * kGroups + i) * 2 + threadIdx.x % kWarp / 16;
  }
  // limit_of(row): of 16·kGroups.
  template <typename Limit>
  __device__ explicit Softmax(const Limit& limit_of) {
#pragma unroll
    for (int i = 0; i < kGroups; ++i) {
      limit[i] = limit_of(row(i));
      largest[i] = -INFINITY;
      total[i] = 0;
    }
  }
  // Scores, or two halves of them, become weights.
  template <int kParts>
  __device__ void weigh(Exchange* exchange, int begin, float scale) {
    const int column = threadIdx.x % 16 * 2;
#pragma unroll
    for (int i = 0; i < kGroups; ++i) {
      Exchange& own = exchange[row(i)];
      float2 two = *reinterpret_cast<const float2*>(own.scores + column);
      if constexpr (kParts == 2) {
        const float2 more = *reinterpret_cast<const float2*>(exchange[16 + row(i)].scores + column);
        two.x += more.x;
        two.y += more.y;
      }
      two.x = begin + column < limit[i] ? two.x * scale : -INFINITY;
      two.y = begin + column + 1 < limit[i] ? two.y * scale : -INFINITY;
      float most = fmaxf(largest[i], fmaxf(two.x, two.y));
#pragma unroll
      for (int offset = 8; offset > 0; offset /= 2)
        most = fmaxf(most, __shfl_xor_sync(kAllLanes, most, offset));
      const float safe = most == -INFINITY ? 0.0f : most;  // nothing visible yet
      const float shrink = power_of_two(largest[i] - safe);
      largest[i] = most;
      two.x = power_of_two(two.x - safe);
      two.y = power_of_two(two.y - safe);
      total[i] = fmaf(total[i], shrink, two.x + two.y);
      __syncwarp();  // all lanes have read the scores that lie there
      reinterpret_cast<uint32_t*>(own.scores)[column / 2] = pack_bf16(two.x, two.y);
      if (column == 0) own.shrink = shrink;
    }
  }
  __device__ void finish(Exchange* exchange) const {
#pragma unroll
    for (int i = 0; i < kGroups; ++i) {
      float sum = total[i];
#pragma unroll
      for (int offset = 8; offset > 0; offset /= 2) sum += __shfl_xor_sync(kAllLanes, sum, offset);
      if (threadIdx.x % 16 == 0) {
        exchange[row(i)].largest = largest[i];
        exchange[row(i)].total = sum;
      }
    }
  }
};

// Values of a warp's dimensions times the weights of 16 query rows. With lane = 4·g + t a lane has
// query rows g and g + 8.
template <int kDimensions>
struct ValueSums {
  float sums[kDimensions / 8][4] = {};

  __device__ void add(const Exchange* exchange, const __nv_bfloat16* values, int first_dimension) {
    const int lane = threadIdx.x % kWarp, g = lane / 4;
    const float low = exchange[g].shrink, high = exchange[g + 8].shrink;
    if (__any_sync(kAllLanes, low != 1.0f || high != 1.0f)) {
#pragma unroll
      for (int n = 0; n < kDimensions / 8; ++n)
#pragma unroll
        for (int i = 0; i < 4; ++i) sums[n][i] *= i < 2 ? low : high;
    }
#pragma unroll
    for (int step = 0; step < 2; ++step) {
      uint32_t p[4];
      load_matrices(p, exchange[lane % 16].scores + 8 * step + lane / 16 * 4);
#pragma unroll
      for (int n = 0; n < kDimensions / 8; n += 2) {
        uint32_t v[4];
        load_matrices_transposed(
            v, values + (16 * step + lane % 16) * kPitch + first_dimension + 8 * n + lane / 16 * 8);
        multiply_add(sums[n], p, v[0], v[1]);
        multiply_add(sums[n + 1], p, v[2], v[3]);
      }
    }
  }
  __device__ void store(float* partials, const Exchange* exchange, const int (&record)[2],
                        int first_dimension) const {
    const int g = threadIdx.x % kWarp / 4, t = threadIdx.x % 4;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      if (record[half] < 0) continue;
      float* const to = partials + static_cast<int64_t>(record[half]) * kPartial;
#pragma unroll
      for (int n = 0; n < kDimensions / 8; ++n)
        *reinterpret_cast<float2*>(to + first_dimension + 8 * n + 2 * t) =
            make_float2(sums[n][2 * half], sums[n][2 * half + 1]);
      if (first_dimension == 0 && t == 0) {
        const Exchange& own = exchange[g + 8 * half];
        *reinterpret_cast<float2*>(to + kHead) = make_float2(own.largest, own.total);
      }
    }
  }
};

}  // namespace pewter::cuda
