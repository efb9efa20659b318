// Gated attention over paged bf16 keys and values: preparing the step's rows, then the attention
// itself. Decode goes over fixed stretches of positions in parallel (split.cu; of one row behind a
// short context in the kernel of its whole block, net.cu); the plain kernel
// (plain.cu) takes one row and head at a time, serves prefill and odd head sizes, and is the
// other's twin.
#pragma once

#include <cuda_bf16.h>
#include <cuda_runtime_api.h>

#include <cstdint>

#include "backend/cuda/common/gpu.h"
#include "backend/cuda/common/prefetch.h"

namespace pewter::cuda {

struct PagedCache {
  std::byte *keys = nullptr, *values = nullptr;
  int64_t page_bytes = 0;
};

struct AttentionShape {
  int query_heads = 0, kv_heads = 0, head_dim = 0;
};

struct AttentionBatch {
  const int32_t* row_sequence = nullptr;
  const int32_t* row_begin = nullptr;
  const int32_t* context_length = nullptr;
  const int32_t* page_table = nullptr;
  int64_t page_table_stride = 0;
  int rows = 0, sequences = 0;
};

struct PrepareArgs {
  AttentionShape shape;
  AttentionBatch batch;
  PagedCache cache;
  const __nv_bfloat16* in = nullptr;  // [rows, in_stride]: (q, gate) a head, k, v
  int64_t in_stride = 0;
  const float *q_norm = nullptr, *k_norm = nullptr;
  float epsilon = 0;
  int rotary_dim = 0;
  const float* inverse_frequency = nullptr;
  const int32_t* axis = nullptr;
  const int32_t* positions = nullptr;
  const int32_t* position_delta = nullptr;
  __nv_bfloat16* q = nullptr;  // [rows, q_stride]
  int64_t q_stride = 0;
  Prefetch next;  // for the kernels behind
};
void attention_prepare(cudaStream_t stream, const PrepareArgs& args);

struct AttendArgs {
  AttentionShape shape;
  AttentionBatch batch;
  PagedCache cache;
  const __nv_bfloat16* q = nullptr;
  int64_t q_stride = 0;
  const __nv_bfloat16* in = nullptr;  // for the gates
  int64_t in_stride = 0;
  __nv_bfloat16* out = nullptr;
  int64_t out_stride = 0;
  uint8_t* codes = nullptr;   // split: the out rows coded as well (linear/coded_rows.h), or null
  bool halves = false;        // these are halves
  float* partials = nullptr;  // split: [stretches, query_heads, head_dim + 4] a row
  int most_rows = 0;          // of one sequence in this step
  int window = 0;             // plain: a row sees the last so many positions; 0: all
};
void attend_plain(cudaStream_t stream, const AttendArgs& args);

// The split kernel's stretches of positions: short ones first, so that a short context uses many
// multiprocessors, long ones later, so that partial results stay few. They depend on positions
// alone, and with them the order of every sum.
constexpr int stretch_begin(int stretch) {
  if (stretch <= 16) return stretch * 64;                  // to 1,024
  if (stretch <= 40) return 1024 + (stretch - 16) * 128;   // to 4,096
  if (stretch <= 152) return 4096 + (stretch - 40) * 256;  // to 32,768
  return 32768 + (stretch - 152) * 512;
}
constexpr int stretches_of(int positions) {
  if (positions <= 1024) return (positions + 63) / 64;
  if (positions <= 4096) return 16 + (positions - 1024 + 127) / 128;
  if (positions <= 32768) return 40 + (positions - 4096 + 255) / 256;
  return 152 + (positions - 32768 + 511) / 512;
}
bool can_split(const AttentionShape& shape);
// Floats of partials for sequences of `positions` altogether and `rows` rows each at most.
int64_t split_partial_floats(const AttentionShape& shape, int64_t positions, int64_t sequences,
                             int64_t rows);
void attend_split(cudaStream_t stream, const Gpu& gpu, const AttendArgs& args);

}  // namespace pewter::cuda
