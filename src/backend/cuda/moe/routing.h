// Routing: which rows meet which experts.
#pragma once

#include "backend/cuda/moe/experts.h"

namespace pewter::cuda {

void route_rows(cudaStream_t stream, const RouteRows& args);

void group_pairs(cudaStream_t stream, const GroupPairs& args);
// Both in one kernel; false, and nothing done, when there are too many rows for that.
bool route_and_group(cudaStream_t stream, const RouteRows& route, const GroupPairs& group);
constexpr int64_t most_blocks(int64_t rows, int64_t experts, int64_t top_k, int64_t capacity) {
  const int64_t pairs = rows * top_k;
  const int64_t partial = pairs < experts ? pairs : experts;  // each expert may end in one
  return pairs / capacity + partial + (rows + capacity - 1) / capacity;
}

}  // namespace pewter::cuda
