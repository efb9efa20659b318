// Adds the partial results of split.cu and applies the gate.
//
// Split of work: a block of threads takes half a query head of one row. Sixteen strands of
// stretches, every sixteenth each, are added by a warp each, or by four warps in turn where rows
// are many; a lane has four dimensions; one warp adds the strands in order. Bytes: every partial
// once, from the L2 cache. Precision: f32. Limits: a few trips to the L2 cache, one after another.

#include "backend/cuda/attention/merge.cuh"

namespace pewter::cuda {
namespace {

template <int kWarps>
__global__ void __launch_bounds__(kWarps* kWarp, 1)
    merge_kernel(const __grid_constant__ AttendArgs a) {
  __shared__ MergeMemory memory;
  start_next();
  wait_for_inputs();
  MergedHalf half{.head = static_cast<int>(blockIdx.x) / 2,
                  .first = static_cast<int>(blockIdx.x) % 2 * (kHead / 2),
                  .row = static_cast<int>(blockIdx.y)};
  const int sequence = a.batch.sequences == 1 ? 0 : a.batch.row_sequence[half.row];
  const int row_begin = a.batch.row_begin[sequence], row = half.row - row_begin;
  const int rows = a.batch.row_begin[sequence + 1] - row_begin;
  half.stretches = stretches_of(a.batch.context_length[sequence] + row + 1);
  half.step = static_cast<int64_t>(rows) * a.shape.query_heads * kPartial;
  const int64_t partial = first_partial(a.batch, sequence) + row;
  half.partials = a.partials + (partial * a.shape.query_heads + half.head) * kPartial;
  const uint4 gates = *reinterpret_cast<const uint4*>(a.in + half.row * a.in_stride +
                                                      half.column() + (half.head + 1) * kHead);
  merge_half<kWarps>(a, half, gates, memory, BlockBarrier{});
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
