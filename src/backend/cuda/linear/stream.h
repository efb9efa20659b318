// Weight-streaming products: some rows times tiled matrices, the kernel family behind every
// projection and the output head (the experts' kernels share its parts, moe/experts.h). One family
// serves 1 row and 512, so a row has the same bits whatever rows are beside it: few rows by
// stream.cu, many by stream_wide.cu, which sums in the same order.
#pragma once

#include <cuda_bf16.h>
#include <cuda_runtime_api.h>

#include "backend/cuda/common/gpu.h"
#include "backend/cuda/weight_layout.h"

namespace pewter::cuda {

// One stack of tiled matrices as kernels see it.
struct TileStack {
  const uint8_t* values = nullptr;
  const float* row_scales = nullptr;  // int8: [count, outputs padded to 16]
  int64_t matrix_bytes = 0;
  WeightFormat format = WeightFormat::kBF16;
  DType scale_dtype = DType::kF32;
  bool has_zeros = false;
  int n = 0, tiles = 0;
  int blocks = 0;  // of a tile
  int block_bytes = 0;
  int out_column = 0;  // where its outputs begin
};
// What most models consist of: bf16, fp8, int4 with scales of 16 bits and no zero points. Kernels
// for these alone are shorter, and instructions that are not in their cache come as slowly as
// weights.
inline bool is_common(const TileStack& w) {
  return w.format == WeightFormat::kBF16 || w.format == WeightFormat::kFp8Block128 ||
         (w.format == WeightFormat::kInt4Group128 && w.scale_dtype != DType::kF32 && !w.has_zeros);
}
TileStack stack_of(const WeightMatrix& w, int64_t out_column = 0);

// What happens to a finished sum.
enum class StreamOutput : uint8_t {
  kBF16,      // out[row, column] = sum
  kF32,       // …
  kAddF32,    // out = sum, residual += sum
  kGatedBF16  // out = silu(first matrix) · second matrix
};

struct StreamArgs {
  // kGatedBF16: gate, up. Otherwise matrices side by side.
  static constexpr int kMaxStacks = 4;
  TileStack w[kMaxStacks];
  int stacks = 0;
  int k = 0, rows = 0;
  const __nv_bfloat16* x = nullptr;  // [rows, x_stride]
  int64_t x_stride = 0;
  const int32_t* x_rows = nullptr;  // row r of the product reads row x_rows[r] of x; null: r
  // The same rows coded (coded_rows.h), for int4 and int8 matrices: scratch, unless has_codes.
  uint8_t* codes = nullptr;
  bool has_codes = false;
  bool halves = false;  // these are halves, which wants_halves (stream_wide.h) says
  int32_t* claims =
      nullptr;  // scratch [2], zero between kernels; null: all work is shared out before
  // Scratch for slices of k of many rows (stream_wide.cu) of matrices of up to so many outputs.
  float* partials = nullptr;
  int64_t partial_outputs = 0;
  void* out = nullptr;
  int64_t out_stride = 0;  // elements
  float* residual = nullptr;
  int64_t residual_stride = 0;
  StreamOutput output = StreamOutput::kBF16;
};

bool has_coded(const StreamArgs& args);  // whether a matrix wants coded rows
// The product, and the twin that takes no more than 32 rows at once and no partials.
void stream_product(cudaStream_t stream, const Gpu& gpu, const StreamArgs& args);
void stream_narrow(cudaStream_t stream, const Gpu& gpu, const StreamArgs& args);

}  // namespace pewter::cuda
