// Adding the partial results of stretches, and the gate: a half of a query head of one row, by a
// block of threads.
#pragma once

#include "backend/cuda/attention/partials.cuh"
#include "backend/cuda/common/matrix.cuh"
#include "backend/cuda/linear/coded_rows.cuh"

namespace pewter::cuda {

constexpr int kStrands = 16;

// Partial rows of the sequences before this one, by a warp.
__device__ inline int first_partial(const AttentionBatch& b, int sequence) {
  if (sequence == 0) return 0;
  int sum = 0;
  for (int s = threadIdx.x % kWarp; s < sequence; s += kWarp) {
    const int rows = b.row_begin[s + 1] - b.row_begin[s];
    sum += stretches_of(b.context_length[s] + rows) * rows;
  }
  return static_cast<int>(__reduce_add_sync(kAllLanes, static_cast<unsigned>(sum)));
}

struct Strand {
  float4 sum = {0, 0, 0, 0};
  float largest = -INFINITY, total = 0;
};

// Of `count` partials from `at` on, `stride` floats apart, kDepth on their way at once. The lane's
// dimensions are at `dimension`.
template <int kDepth>
__device__ inline Strand add_strand(const float* at, int64_t stride, int count, int dimension) {
  const int lane = threadIdx.x % kWarp;
  Strand s;
  if (count == 1) {  // as the sums below would have it
    const float2 end = *reinterpret_cast<const float2*>(at + kHead);
    s.sum = *reinterpret_cast<const float4*>(at + dimension);
    s.largest = end.x;
    s.total = end.y;
    return s;
  }
#pragma unroll 1
  for (int begin = 0; begin < count; begin += kWarp) {
    const int here = min(count - begin, kWarp);  // a lane computes the factor of one of them
    float2 end = make_float2(-INFINITY, 0);
    if (lane < here) end = *reinterpret_cast<const float2*>(at + lane * stride + kHead);
    float factor = 0;
#pragma unroll 1
    for (int base = 0; base < here; base += kDepth) {
      float4 v[kDepth];
#pragma unroll
      for (int i = 0; i < kDepth; ++i) {
        if (base + i < here) v[i] = *reinterpret_cast<const float4*>(at + dimension);
        at += stride;
      }
      if (base == 0) {
        const float most = fmaxf(s.largest, warp_max(end.x)), shrink = exp2f(s.largest - most);
        factor = exp2f(end.x - most);
        s.total = fmaf(s.total, shrink, warp_sum(end.y * factor));
        s.sum = make_float4(s.sum.x * shrink, s.sum.y * shrink, s.sum.z * shrink, s.sum.w * shrink);
        s.largest = most;
      }
#pragma unroll
      for (int i = 0; i < kDepth; ++i) {
        const float f = __shfl_sync(kAllLanes, factor, base + i);
        if (base + i < here)
          s.sum = make_float4(fmaf(v[i].x, f, s.sum.x), fmaf(v[i].y, f, s.sum.y),
                              fmaf(v[i].z, f, s.sum.z), fmaf(v[i].w, f, s.sum.w));
      }
    }
  }
  return s;
}

struct MergeMemory {
  __align__(16) float sums[kStrands][kHead / 2];
  float2 ends[kStrands];
};

// Which half of a head of which row, and where its partial results are.
struct MergedHalf {
  int head, first, row;  // first of its dimensions
  int stretches = 0;
  const float* partials = nullptr;  // of the first stretch
  int64_t step = 0;                 // floats to the next one's

  __device__ int column() const { return head * kHead + first + dimension(); }
  // Of the lane's eight. Each half of a warp has all 128.
  static __device__ int dimension() { return static_cast<int>(threadIdx.x) % 16 * 8; }
};

// By kWarps warps; the first of them writes, with the gates of its lanes' dimensions, unless it is
// a rehearsal. sync(): a barrier of them.
template <int kWarps, typename Sync>
__device__ inline void merge_half(const AttendArgs& a, const MergedHalf& half, const uint4& gates,
                                  MergeMemory& memory, const Sync& sync, bool writes = true) {
  constexpr int kTogether = kWarps == kStrands ? 8 : kWarps == 8 ? 1 : 4;
  const int lane = threadIdx.x % kWarp, warp = threadIdx.x / kWarp;
  const float* const from = half.partials;
  const int strands = min(half.stretches, kStrands);
#pragma unroll 1
  for (int strand = warp; strand < strands; strand += kWarps) {
    const int count = (half.stretches - strand + kStrands - 1) / kStrands;
    const Strand s = add_strand<kTogether>(from + strand * half.step, kStrands * half.step, count,
                                           half.first + 4 * lane);
    *reinterpret_cast<float4*>(&memory.sums[strand][4 * lane]) = s.sum;
    if (lane == 0) memory.ends[strand] = make_float2(s.largest, s.total);
  }
  sync();
  if (warp > 0) return;

  const float2 end = lane < strands ? memory.ends[lane] : make_float2(-INFINITY, 0);
  const float factor = exp2f(end.x - warp_max(end.x)), total = warp_sum(end.y * factor);
  float sums[8] = {};
#pragma unroll 2
  for (int i = 0; i < strands; ++i) {
    const float f = __shfl_sync(kAllLanes, factor, i);
#pragma unroll
    for (int j = 0; j < 8; ++j)
      sums[j] = fmaf(memory.sums[i][MergedHalf::dimension() + j], f, sums[j]);
  }
  const auto* const gate = reinterpret_cast<const __nv_bfloat16*>(&gates);
  uint32_t out[4];
#pragma unroll
  for (int i = 0; i < 4; ++i)
    out[i] = pack_bf16(sums[2 * i] / total * sigmoid(to_float(gate[2 * i])),
                       sums[2 * i + 1] / total * sigmoid(to_float(gate[2 * i + 1])));
  const uint4 eight = make_uint4(out[0], out[1], out[2], out[3]);
  const int width = a.shape.query_heads * kHead;
  const bool inside = lane < 16 && writes;
  if (inside) *reinterpret_cast<uint4*>(a.out + half.row * a.out_stride + half.column()) = eight;
  if (a.codes != nullptr)
    code_inputs(eight, half.column(), inside, width,
                a.codes + static_cast<int64_t>(half.row) * row_pitch(width), a.halves);
}

}  // namespace pewter::cuda
