// Routing and the sums around the experts' products (linear/stream.h does those).
#pragma once

#include "backend/cuda/linear/stream.h"

namespace pewter::cuda {

struct RouteRows {
  // [slices, rows, experts + 1] to be added: the router's logits, then the shared gate's.
  const float* logits = nullptr;
  int slices = 1;
  int32_t* expert = nullptr;       // [rows, top_k]
  float* weight = nullptr;         // [rows, top_k]
  float* shared_weight = nullptr;  // [rows]
  int rows = 0, experts = 0, top_k = 0;
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
};
void group_pairs(cudaStream_t stream, const GroupPairs& args);
// Both in one kernel; false, and nothing done, when there are too many rows for that.
bool route_and_group(cudaStream_t stream, const RouteRows& route, const GroupPairs& group);
constexpr int64_t most_blocks(int64_t rows, int64_t experts, int64_t top_k, int64_t capacity) {
  const int64_t pairs = rows * top_k;
  const int64_t partial = pairs < experts ? pairs : experts;  // each expert may end in one
  return pairs / capacity + partial + (rows + capacity - 1) / capacity;
}

// partial = Σ_slot weight · y[pair] + shared_weight · shared_y; residual += partial.
struct CombineRows {
  const float* y = nullptr;         // [rows · top_k, hidden]
  const float* shared_y = nullptr;  // [rows, hidden]
  const float* weight = nullptr;    // [rows, top_k]
  const float* shared_weight = nullptr;
  float* partial = nullptr;
  float* residual = nullptr;  // null: only the partial sum
  int rows = 0, top_k = 0, hidden = 0;
};
void combine_rows(cudaStream_t stream, const CombineRows& args);

}  // namespace pewter::cuda
