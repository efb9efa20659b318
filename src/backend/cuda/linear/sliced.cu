// One warp a (tile of 16 outputs, slice of k, eight rows). How k is cut and the order of the slices
// depend on nothing else. Bytes: the weights once per eight rows, from memory or L2. Limits: the
// latency of one or two batches of weights, with all multiprocessors at it.

#include "backend/cuda/linear/fragments.cuh"
#include "backend/cuda/linear/sliced.h"

namespace pewter::cuda {
namespace {

constexpr int kWarps = 4;

__global__ void __launch_bounds__(kWarps* kWarp)
    sliced_kernel(const __grid_constant__ SlicedArgs a) {
  const Lane me;
  start_next();
  const int slice = blockIdx.y * kWarps + me.warp, first_row = 8 * blockIdx.z;
  int tile = blockIdx.x;
  const bool second = tile >= a.w[0].tiles;
  const TileStack& w = second ? a.w[1] : a.w[0];
  if (second) tile -= a.w[0].tiles;
  const int unit = record_unit(w.format), blocks = (w.records + unit - 1) / unit;
  int record = slice * blocks / kSlices * unit;
  const int end = min((slice + 1) * blocks / kSlices * unit, w.records);

  uint4 batch[kBatch];
  Run run = run_at(w, 0, tile, record, end, me);
#pragma unroll
  for (int i = 0; i < kBatch; ++i) request(run, i, batch[i]);
  Scales scales = load_scales(w, 0, tile, record, me);
  wait_for_inputs();
  const int count = min(8, a.rows - first_row);
  Inputs<false> x[1];
  x[0].set(a.x + (first_row + (me.g < count ? me.g : 0)) * a.x_stride);
  float acc[1][4] = {};
  for (; record < end; record += kBatch) {
    run = run_at(w, 0, tile, record + kBatch, end, me);
    const Scales next = load_scales(w, 0, tile, record + kBatch, me);
    consume<1, false>(w, batch, scales, run, record, end, me, x, acc);
    scales = next;
  }
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const int output = tile * 16 + me.g + i / 2 * 8, row = 2 * me.t + i % 2;
    if (output < w.n && row < count)
      a.out[(static_cast<int64_t>(slice) * a.rows + first_row + row) * a.out_stride + w.out_column +
            output] = acc[0][i];
  }
}

}  // namespace

void sliced_product(cudaStream_t stream, const SlicedArgs& args) {
  const dim3 grid(static_cast<unsigned>(args.w[0].tiles + args.w[1].tiles), kSlices / kWarps,
                  static_cast<unsigned>((args.rows + 7) / 8));
  launch(stream, grid, dim3(kWarps * kWarp), 0, sliced_kernel, args);
}

}  // namespace pewter::cuda
