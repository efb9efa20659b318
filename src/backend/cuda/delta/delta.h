// The Gated DeltaNet mixer between its projections: convolution, gates, delta rule, gated norm, and
// the bookkeeping of window and tape.
#pragma once

#include <cuda_bf16.h>
#include <cuda_runtime_api.h>

#include <cstdint>

namespace pewter::cuda {

struct DeltaArgs {
  // Batch arrays. A null `slot` means one sequence: slot `fold_slot` with `fold_accepted`
  // tape rows and no new ones.
  const int32_t* slot = nullptr;
  const int32_t* accepted = nullptr;
  const int32_t* row_begin = nullptr;
  int32_t fold_slot = 0, fold_accepted = 0;
  int sequences = 0;

  const __nv_bfloat16* in = nullptr;  // [rows, in_stride]: q k v z b a
  int64_t in_stride = 0;
  const float* conv = nullptr;  // [channels, 4]
  const float *a_log = nullptr, *dt_bias = nullptr, *norm = nullptr;
  float epsilon = 0;
  int key_heads = 0, value_heads = 0, key_dim = 0, value_dim = 0;
  int sharers = 0;  // value heads of a key head

  float* state = nullptr;           // [slots, Hv, dk, dv]
  __nv_bfloat16* window = nullptr;  // [slots, 3, channels]
  __nv_bfloat16* tape = nullptr;    // [slots, 16, channels]
  float* gates = nullptr;           // [slots, 16, 2, Hv]

  // Decode: the most tape rows and new rows a sequence may have; zeros between steps, one for each
  // (sequence, key head).
  int tape_rows = 0, most_rows = 0;
  int32_t* readers = nullptr;
  // Prefill scratch, of tape rows then new rows for each sequence: a sequence's rows begin at
  // 16·sequence + row_begin.
  float* mixed = nullptr;        // [rows + 16·sequences, channels] after the convolution
  float* mixed_gates = nullptr;  // [rows + 16·sequences, 2, Hv]

  __nv_bfloat16* out = nullptr;  // [rows, out_stride]
  int64_t out_stride = 0;
  uint8_t* codes = nullptr;  // decode: the out rows coded as well (linear/coded_rows.h), or null
  bool halves = false;       // these are halves

  __host__ __device__ int channels() const {
    return 2 * key_heads * key_dim + value_heads * value_dim;
  }
};

bool can_code(const DeltaArgs& args);
void delta_prefill(cudaStream_t stream, const DeltaArgs& args);
void delta_decode(cudaStream_t stream, const DeltaArgs& args);  // and fold

}  // namespace pewter::cuda
