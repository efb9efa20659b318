// Kernels that walk over rows: embedding, norms, sums. Each is a launcher over device pointers.
#pragma once

#include <cuda_bf16.h>
#include <cuda_runtime_api.h>

#include "backend/cuda/linear/stream.h"

namespace pewter::cuda {

struct EmbedRows {
  const int32_t* tokens = nullptr;   // [rows]; -1 - i: that of choices[i]
  const int32_t* choices = nullptr;  // tokens, or where there are ids, numbers of them; -1 is 0
  const int32_t* ids = nullptr;
  const int32_t* embedding_index = nullptr;
  const float* embeddings = nullptr;  // [given, hidden] or null
  TileStack table;                    // bf16
  float* out = nullptr;               // [rows, hidden]
  int rows = 0, hidden = 0;
};
void embed_rows(cudaStream_t stream, const EmbedRows& args);

// out = x / rms(x) · (1 + weight)
struct NormRows {
  const float* x = nullptr;  // [rows, width], or bf16 below
  const __nv_bfloat16* x_bf16 = nullptr;
  int64_t x_stride = 0;
  const int32_t* x_rows = nullptr;  // the row of x that each takes; null: its own
  const float* weight = nullptr;
  float epsilon = 0;
  __nv_bfloat16* out = nullptr;
  int64_t out_stride = 0;
  uint8_t* codes = nullptr;  // the rows coded as well (linear/coded_rows.h), when they can be
  bool halves = false;       // these are halves
  int rows = 0, width = 0;
};
bool can_code(const NormRows& args);
void norm_rows(cudaStream_t stream, const NormRows& args);

// to[i] += from[i]
void add_values(cudaStream_t stream, const float* from, float* to, int64_t count);
void copy_bytes(cudaStream_t stream, const void* from, void* to, int64_t bytes);

}  // namespace pewter::cuda
