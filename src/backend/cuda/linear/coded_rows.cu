// One warp 256 inputs of a row. Limited by launch and latency.

#include "backend/cuda/linear/coded_rows.h"
#include "backend/cuda/linear/parts.cuh"

namespace pewter::cuda {
namespace {

constexpr int kWarps = 4;

__global__ void __launch_bounds__(kWarps* kWarp)
    code_kernel(const __grid_constant__ CodeRows a, int width) {
  start_next();
  wait_for_inputs();
  const int row = blockIdx.x, lane = threadIdx.x % kWarp;
  const int piece =
      (static_cast<int>(blockIdx.y) * kWarps + static_cast<int>(threadIdx.x) / kWarp) * kWarp * 8;
  if (piece >= width) return;
  const __nv_bfloat16* const from = a.x + (a.x_rows != nullptr ? a.x_rows[row] : row) * a.x_stride;
  const int at = piece + 8 * lane;
  code_inputs(eight_inputs(from, at, a.k), at, at < width, width,
              a.codes + static_cast<int64_t>(row) * row_pitch(width), a.halves);
}

}  // namespace

int64_t coded_row_bytes(int64_t k) { return row_pitch(padded_inputs(static_cast<int>(k))); }

void code_rows(cudaStream_t stream, const CodeRows& args) {
  const int width = args.width > 0 ? args.width : padded_inputs(args.k);
  launch(stream,
         dim3(static_cast<unsigned>(args.rows),
              static_cast<unsigned>((width + kWarps * 256 - 1) / (kWarps * 256))),
         dim3(kWarps * kWarp), 0, code_kernel, args, width);
}

}  // namespace pewter::cuda
