// Coding rows into memory (coded_rows.cuh), for products whose rows do not fit into shared memory.
#pragma once

#include <cuda_bf16.h>
#include <cuda_runtime_api.h>

#include <cstdint>

namespace pewter::cuda {

struct CodeRows {
  const __nv_bfloat16* x = nullptr;  // [rows, x_stride]
  int64_t x_stride = 0;
  const int32_t* x_rows = nullptr;  // row r is row x_rows[r] of x; null: r
  int rows = 0, k = 0;
  int width = 0;             // inputs a coded row has place for; 0: those of k
  bool halves = false;       // as coded_rows.cuh says
  uint8_t* codes = nullptr;  // [rows] of coded_row_bytes(width)
};
int64_t coded_row_bytes(int64_t k);
void code_rows(cudaStream_t stream, const CodeRows& args);

}  // namespace pewter::cuda
