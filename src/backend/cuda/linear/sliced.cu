// One warp a (tile of 16 outputs, slice of k, eight rows). How k is cut and the order of the slices
// depend on nothing else. Bytes: the weights once per eight rows, from memory or L2. Limits: the
// latency of a few kilobytes of weights a warp, with all multiprocessors at it.

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
  __shared__ __align__(16) unsigned char places[kWarps * kPlaces * kPlaceBytes];
  Ring ring(places + me.warp * kPlaces * kPlaceBytes);
  const int block = slice * w.blocks / kSlices, end = (slice + 1) * w.blocks / kSlices;
  int left = (end - block) * w.block_records, in_block = 0;
  const uint8_t* from =
      w.values + (static_cast<int64_t>(tile) * w.blocks + block) * w.block_bytes() + me.lane * 16;
  const auto refill = [&] {
    if (left == 0) return ring.commit();
    --left;
    ring.push(from, me.lane, in_block == 0 && me.lane * 16 < w.tail_bytes,
              w.block_records * static_cast<int>(kRecordBytes));
    from += kRecordBytes;
    if (++in_block == w.block_records) {
      in_block = 0;
      from += w.tail_bytes;
    }
  };
#pragma unroll 1
  for (int i = 0; i < kRing; ++i) refill();
  wait_for_inputs();
  const int count = min(8, a.rows - first_row);
  Inputs<false> x[1];
  x[0].set(a.x + (first_row + (me.g < count ? me.g : 0)) * a.x_stride);
  Sums<1> sums;
  consume<1, false>(w, ring, block, end, me, x, sums, refill);
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const int output = tile * 16 + me.g + i / 2 * 8, row = 2 * me.t + i % 2;
    if (output < w.n && row < count)
      a.out[(static_cast<int64_t>(slice) * a.rows + first_row + row) * a.out_stride + w.out_column +
            output] = sums.acc[0][i];
  }
}

}  // namespace

void sliced_product(cudaStream_t stream, const SlicedArgs& args) {
  const dim3 grid(static_cast<unsigned>(args.w[0].tiles + args.w[1].tiles), kSlices / kWarps,
                  static_cast<unsigned>((args.rows + 7) / 8));
  launch(stream, grid, dim3(kWarps * kWarp), 0, sliced_kernel, args);
}

}  // namespace pewter::cuda
