// Routing: which rows meet which experts.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

namespace pewter::cuda {

// A stretch of rows that meet the same matrix.
struct RowBlock {
  int32_t matrix = 0;  // index in the stack; -1: the shared expert's
  int32_t begin = 0;   // first entry in `pairs` (for matrix -1: first row)
  int32_t count = 0;   // at most block_rows(rows of the step)
};
// Up to kFewRows rows a step, experts get blocks of 4 rows, otherwise of 32. An expert that more
// rows meet has several blocks: from the second on its weights come from the L2 cache.
inline constexpr int kFewRows = 64;
constexpr int block_rows(int64_t rows) { return rows <= kFewRows ? 4 : 32; }

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

// How the three kernels of one row's experts tell each other of the routing before they end
// (decision 24): words (arrival.cuh) that are zero until they are written.
struct RouteWords {
  // [experts + 1], order_of (routing.cuh) each logit, an expert's at word_of(…), the shared gate's
  // last: written by the router, zeroed by the down products.
  uint32_t* logits = nullptr;
  // [top_k + 1], expert + 1 and its weight for each slot, then the shared expert's: written by the
  // up products, zeroed by the router.
  uint64_t* chosen = nullptr;
  __host__ __device__ bool are_used() const { return logits != nullptr; }
  // A lane looks at eight experts beside each other, a multiple of which there are, by two loads;
  // what a warp's lanes load at once lies side by side.
  static constexpr int kTogether = 8;
  static constexpr bool can_have(int experts) { return experts % kTogether == 0; }
  __host__ __device__ static constexpr int word_of(int expert, int experts) {
    return expert / 4 % 2 * (experts / 2) + expert / 8 * 4 + expert % 4;
  }
};

// Softmax and top-k of every row.
struct RouteRows {
  const float* logits = nullptr;   // [rows, experts + 1]: the router's, then the shared gate's
  int32_t* expert = nullptr;       // [rows, top_k]
  float* weight = nullptr;         // [rows, top_k]
  float* shared_weight = nullptr;  // [rows]
  int rows = 0, experts = 0, top_k = 0;
  RouteWords words = {};
};
void route_rows(cudaStream_t stream, const RouteRows& args);

// Blocks of at most `capacity`: first the rows for the shared expert (matrix -1), then the pairs
// (row · top_k + slot) in the order of their experts.
struct GroupPairs {
  const int32_t* expert = nullptr;  // [rows, top_k]
  int rows = 0, experts = 0, top_k = 0, capacity = 0;
  int32_t* pairs = nullptr;    // [rows · top_k]
  RowBlock* blocks = nullptr;  // [most_blocks(…)]
  int32_t* block_count = nullptr;
  int32_t* arrived = nullptr;  // scratch, zero between kernels
};
void group_pairs(cudaStream_t stream, const GroupPairs& args);
// Both in one kernel; false, and nothing done, of more than kFewRows rows.
bool route_and_group(cudaStream_t stream, const RouteRows& route, const GroupPairs& group);
constexpr int64_t most_blocks(int64_t rows, int64_t experts, int64_t top_k, int64_t capacity) {
  const int64_t pairs = rows * top_k;
  const int64_t partial = pairs < experts ? pairs : experts;  // each expert may end in one
  return pairs / capacity + partial + (rows + capacity - 1) / capacity;
}

}  // namespace pewter::cuda
