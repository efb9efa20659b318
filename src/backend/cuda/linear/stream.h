// Weight-streaming products: some rows times tiled matrices, the kernel family behind every
// projection, expert and the output head. One family serves 1 row and 512, so a row has the same
// bits whatever rows are beside it.
#pragma once

#include <cuda_bf16.h>
#include <cuda_runtime_api.h>

#include "backend/cuda/weight_layout.h"

namespace pewter::cuda {

// One stack of tiled matrices as kernels see it.
struct TileStack {
  const uint8_t* values = nullptr;
  int64_t matrix_bytes = 0;
  WeightFormat format = WeightFormat::kBF16;
  DType scale_dtype = DType::kF32;
  bool has_zeros = false;
  int n = 0, tiles = 0;
  int blocks = 0;         // of a tile
  int block_records = 0;  // and what follows them:
  int tail_bytes = 0;
  int out_column = 0;  // where its outputs begin

  __host__ __device__ int records() const { return blocks * block_records; }
  __host__ __device__ int block_bytes() const {
    return block_records * static_cast<int>(kRecordBytes) + tail_bytes;
  }
};
TileStack stack_of(const WeightMatrix& w, int64_t out_column = 0);

// What happens to a finished sum.
enum class StreamOutput : uint8_t {
  kBF16,      // out[row, column] = sum
  kF32,       // …
  kAddF32,    // out = sum, residual += sum
  kGatedBF16  // out = silu(first matrix) · second matrix
};

// A stretch of rows that meet the same matrix.
struct RowBlock {
  int32_t matrix = 0;  // index in the stack; -1: the shared expert's matrices
  int32_t begin = 0;   // first entry in `pairs` (for matrix -1: first row)
  int32_t count = 0;   // at most block_rows(rows of the step)
};
// Up to kFewRows rows a step, experts get blocks of 8 rows, otherwise of 32.
inline constexpr int kFewRows = 64;
constexpr int block_rows(int64_t rows) { return rows <= kFewRows ? 8 : 32; }

struct StreamArgs {
  // kGatedBF16: gate, up. Otherwise matrices side by side.
  static constexpr int kMaxStacks = 4;
  TileStack w[kMaxStacks];
  int stacks = 0;
  const __nv_bfloat16* x = nullptr;  // [rows, x_stride]
  int64_t x_stride = 0;
  int k = 0;
  int rows = 0;
  int source_rows = 0;              // rows of x that may be read
  const int32_t* x_rows = nullptr;  // row r of the product reads row x_rows[r] of x; null: r
  void* out = nullptr;
  int64_t out_stride = 0;  // elements
  float* residual = nullptr;
  int64_t residual_stride = 0;
  StreamOutput output = StreamOutput::kBF16;

  // Experts: blocks of (row, slot) pairs. x row: pair / pairs_per_row when the rows are shared by
  // slots, the pair itself when each has its own (pairs_per_row 1); out row: the pair.
  const RowBlock* blocks = nullptr;  // null: dense
  const int32_t* block_count = nullptr;
  const int32_t* pairs = nullptr;
  int pairs_per_row = 1;
  int max_blocks = 0;
  int block_capacity = 0;  // rows of a block; the shared expert's blocks come first
  // The shared expert's matrices, input and output.
  TileStack shared[2];
  int shared_k = 0;
  bool shared_reads_x = false;  // its rows are x's; otherwise shared_x's
  int shared_rows = 0;          // rows of shared_x
  const __nv_bfloat16* shared_x = nullptr;
  int64_t shared_x_stride = 0;
  void* shared_out = nullptr;
  int64_t shared_out_stride = 0;
};

// What a launch has to know of the GPU.
struct Gpu {
  int multiprocessors = 0;
  int64_t shared_bytes = 0;  // of a multiprocessor
};
void stream_product(cudaStream_t stream, const Gpu& gpu, const StreamArgs& args);

}  // namespace pewter::cuda
