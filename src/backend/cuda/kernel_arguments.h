// Arguments of kernels from those of ops.
#pragma once

#include <cuda_bf16.h>

#include "backend/cuda/linear/stream.h"
#include "base/check.h"
#include "tensor/tensor_view.h"

namespace pewter {

inline __nv_bfloat16* bf16(const TensorView& t) {
  CHECK(t.dtype() == DType::kBF16, "activations of ", dtype_name(t.dtype()));
  return reinterpret_cast<__nv_bfloat16*>(t.data());
}
inline int to_int(int64_t x) { return static_cast<int>(x); }

// Rows of bf16 into outputs: what every dense product shares.
inline cuda::StreamArgs dense(const __nv_bfloat16* x, int64_t x_stride, int64_t k, int64_t rows) {
  cuda::StreamArgs args;
  args.x = x;
  args.x_stride = x_stride;
  args.k = to_int(k);
  args.rows = to_int(rows);
  return args;
}

}  // namespace pewter
