// The router's product: few outputs of rows that have just been left by the layer before,
// normalised here and left for the experts as well.
#pragma once

#include "backend/cuda/linear/stream.h"
#include "backend/cuda/moe/routing.h"

namespace pewter::cuda {

struct RouterProduct {
  TileStack w[2];  // outputs side by side, at their out_column; bf16 or fp8
  int k = 0, rows = 0;
  __nv_bfloat16* x = nullptr;  // [rows, x_stride]; written if norm_x is given
  int64_t x_stride = 0;
  // Rows still to be normalised, when can_norm(…): RMSNorm(norm_x)·(1 + norm_weight).
  const float* norm_x = nullptr;  // [rows, norm_stride]
  int64_t norm_stride = 0;
  const float* norm_weight = nullptr;
  float epsilon = 0;
  uint8_t* codes = nullptr;  // with norm_x: where coded rows are left, unless null
  float* out = nullptr;      // [rows, out_stride]
  int64_t out_stride = 0;
  RouteWords words = {};  // of one row: written beside out, or zeroed
  int chosen = 0;         // how many of words.chosen there are
};
// Whether the kernel may normalise rows itself: few, so that doing it in every block of threads
// costs less than a kernel of its own.
bool can_norm(int64_t rows, int64_t width, int64_t stride);
// Whether it can be had for this width at all.
bool can_route_rows(int64_t k);
void router_product(cudaStream_t stream, const RouterProduct& args);

}  // namespace pewter::cuda
