// The experts' products. Routed experts and the shared one are streamed by the same kernels:
// `blocks` says which rows meet which matrices (moe/routing.h makes them), and permutations of rows
// are never written.
#pragma once

#include "backend/cuda/linear/stream.h"

namespace pewter::cuda {

// A stretch of rows that meet the same matrix.
struct RowBlock {
  int32_t matrix = 0;  // index in the stack; -1: the shared expert's
  int32_t begin = 0;   // first entry in `pairs` (for matrix -1: first row)
  int32_t count = 0;   // at most block_rows(rows of the step)
};
// Up to kFewRows rows a step, experts get blocks of 8 rows, otherwise of 32.
inline constexpr int kFewRows = 64;
constexpr int block_rows(int64_t rows) { return rows <= kFewRows ? 8 : 32; }

// Which rows meet which experts: first the shared expert's blocks, then pairs (row · top_k + slot)
// in the order of their experts.
struct Grouping {
  int rows = 0, top_k = 0;
  const RowBlock* blocks = nullptr;  // [*block_count], at most max_blocks
  const int32_t* block_count = nullptr;
  const int32_t* pairs = nullptr;  // [rows · top_k]
  int max_blocks = 0;

  __host__ __device__ int capacity() const { return block_rows(rows); }
  __host__ __device__ int shared_blocks() const { return (rows + capacity() - 1) / capacity(); }
};

// What routing of the step's rows reads and writes.
struct RouteRows {
  const float* logits = nullptr;   // [rows, experts + 1]: the router's, then the shared gate's
  int32_t* expert = nullptr;       // [rows, top_k]
  float* weight = nullptr;         // [rows, top_k]
  float* shared_weight = nullptr;  // [rows]
  int rows = 0, experts = 0, top_k = 0;
};
// Blocks of at most `capacity`: first the rows for the shared expert (matrix -1), then the pairs
// (row · top_k + slot) in the order of their experts.
struct GroupPairs {
  const int32_t* expert = nullptr;  // [rows, top_k]
  int rows = 0, experts = 0, top_k = 0, capacity = 0;
  int32_t* pairs = nullptr;    // [rows · top_k]
  RowBlock* blocks = nullptr;  // [most_blocks(…)]
  int32_t* block_count = nullptr;
};

// hidden[pair] = silu(gate·x) · (up·x) of the pair's row and expert; the same of the shared one.
struct ExpertsUp {
  Grouping groups;
  // When can_route(…): rows are still to be routed and grouped, which the kernel does itself.
  RouteRows route;
  GroupPairs grouping;
  TileStack w[2], shared[2];         // gate, up
  const __nv_bfloat16* x = nullptr;  // [rows, x_stride]
  int64_t x_stride = 0;
  int k = 0;
  __nv_bfloat16* out = nullptr;  // [rows · top_k, out_stride]
  int64_t out_stride = 0;
  __nv_bfloat16* shared_out = nullptr;  // [rows, shared_stride]
  int64_t shared_stride = 0;
  uint8_t* codes = nullptr;  // x coded (linear/coded_rows.h), for int4 and int8: scratch, unless
  bool has_codes = false;    // has_codes
};
bool can_route(const RouteRows& route);
void experts_up(cudaStream_t stream, const Gpu& gpu, const ExpertsUp& args);

// partial = Σ_slot weight · down(x[pair]), in slot order, + shared_weight · shared_down(shared_x);
// residual += partial.
struct ExpertsDown {
  Grouping groups;
  TileStack w, shared;
  const __nv_bfloat16* x = nullptr;  // [rows · top_k, x_stride]
  int64_t x_stride = 0;
  int k = 0;
  const __nv_bfloat16* shared_x = nullptr;  // [rows, shared_x_stride]
  int64_t shared_x_stride = 0;
  int shared_k = 0;
  const float* weight = nullptr;         // [rows, top_k]
  const float* shared_weight = nullptr;  // [rows]
  float* partial = nullptr;              // [rows, hidden]
  float* residual = nullptr;             // [rows, hidden]; null: only the partial sum
  int hidden = 0;
  uint8_t* codes =
      nullptr;  // scratch for coded rows that do not fit into shared memory: pairs, rows
  float* outputs = nullptr;  // scratch for many rows: [rows · (top_k + 1), hidden]
};
void experts_down(cudaStream_t stream, const Gpu& gpu, const ExpertsDown& args);

}  // namespace pewter::cuda
