// Adds the partial results of split.cu and applies the gate.
//
// Split of work: a block of threads takes half a query head of one row. Sixteen strands of
// stretches, every sixteenth each, are added by a warp each, or by four warps in turn where rows
// are many; a lane has four dimensions; one warp adds the strands in order. Bytes: every partial
// once, from the L2 cache. Precision: f32. Limits: a few trips to the L2 cache, one after another.

#include "backend/cuda/attention/partials.cuh"
#include "backend/cuda/common/matrix.cuh"
#include "backend/cuda/linear/coded_rows.cuh"

namespace pewter::cuda {
namespace {

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

template <int kWarps>
__global__ void __launch_bounds__(kWarps* kWarp, 1)
    merge_kernel(const __grid_constant__ AttendArgs a) {
  constexpr int kTogether = kWarps == kStrands ? 8 : 4;
  __shared__ __align__(16) float strand_sums[kStrands][kHead / 2];
  __shared__ float2 strand_ends[kStrands];
  start_next();
  wait_for_inputs();
  const int lane = threadIdx.x % kWarp, warp = threadIdx.x / kWarp;
  const int head = blockIdx.x / 2, first = blockIdx.x % 2 * (kHead / 2), row = blockIdx.y;
  const int sequence = a.batch.sequences == 1 ? 0 : a.batch.row_sequence[row];
  const int row_begin = a.batch.row_begin[sequence];
  const int rows = a.batch.row_begin[sequence + 1] - row_begin;
  const int stretches = stretches_of(a.batch.context_length[sequence] + row - row_begin + 1);
  const int64_t step = static_cast<int64_t>(rows) * a.shape.query_heads * kPartial;
  const int64_t partial = first_partial(a.batch, sequence) + row - row_begin;
  const float* const from = a.partials + (partial * a.shape.query_heads + head) * kPartial;

  // In the end each half of a warp has all 128 dimensions.
  const int dimension = lane % 16 * 8;
  const uint4 gate_bits = *reinterpret_cast<const uint4*>(
      a.in + row * a.in_stride + (2 * head + 1) * kHead + first + dimension);

  const int strands = min(stretches, kStrands);
#pragma unroll 1
  for (int strand = warp; strand < strands; strand += kWarps) {
    const int count = (stretches - strand + kStrands - 1) / kStrands;
    const Strand s =
        add_strand<kTogether>(from + strand * step, kStrands * step, count, first + 4 * lane);
    *reinterpret_cast<float4*>(&strand_sums[strand][4 * lane]) = s.sum;
    if (lane == 0) strand_ends[strand] = make_float2(s.largest, s.total);
  }
  __syncthreads();
  if (warp > 0) return;

  const float2 end = lane < strands ? strand_ends[lane] : make_float2(-INFINITY, 0);
  const float factor = exp2f(end.x - warp_max(end.x)), total = warp_sum(end.y * factor);
  float sums[8] = {};
#pragma unroll 2
  for (int i = 0; i < strands; ++i) {
    const float f = __shfl_sync(kAllLanes, factor, i);
#pragma unroll
    for (int j = 0; j < 8; ++j) sums[j] = fmaf(strand_sums[i][dimension + j], f, sums[j]);
  }
  const auto* const gate = reinterpret_cast<const __nv_bfloat16*>(&gate_bits);
  uint32_t out[4];
#pragma unroll
  for (int i = 0; i < 4; ++i)
    out[i] = pack_bf16(sums[2 * i] / total * sigmoid(to_float(gate[2 * i])),
                       sums[2 * i + 1] / total * sigmoid(to_float(gate[2 * i + 1])));
  const uint4 eight = make_uint4(out[0], out[1], out[2], out[3]);
  const int at = head * kHead + first + dimension, width = a.shape.query_heads * kHead;
  if (lane < 16) *reinterpret_cast<uint4*>(a.out + row * a.out_stride + at) = eight;
  if (a.codes != nullptr)
    code_inputs(eight, at, lane < 16, width, a.codes + static_cast<int64_t>(row) * row_pitch(width),
                a.halves);
}

}  // namespace

void merge(cudaStream_t stream, const AttendArgs& args) {
  const dim3 grid(static_cast<unsigned>(2 * args.shape.query_heads),
                  static_cast<unsigned>(args.batch.rows));
  // The more rows, the more blocks of threads a multiprocessor should hold.
  if (args.batch.rows <= 2)
    launch(stream, grid, dim3(kStrands * kWarp), 0, merge_kernel<kStrands>, args);
  else
    launch(stream, grid, dim3(4 * kWarp), 0, merge_kernel<4>, args);
}

}  // namespace pewter::cuda
