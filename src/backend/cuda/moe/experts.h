// The experts' products. Routed experts and the shared one are streamed by the same kernels:
// routing.h says which rows meet which matrices, and permutations of rows are never written.
#pragma once

#include "backend/cuda/linear/stream.h"
#include "backend/cuda/moe/routing.h"

namespace pewter::cuda {

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
  // The kernel before had waited for the groups when it let this one start.
  bool has_groups = false;
  // When can_route(…): the router's logits, for kernels that rather route for themselves. The
  // kernel before must have waited for them before it let this one start.
  RouteRows route;
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
