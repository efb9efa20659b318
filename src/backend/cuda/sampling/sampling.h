// The sample op on the GPU (docs/numerics.md, Sampling).
#pragma once

#include <cuda_runtime_api.h>

#include "backend/ops.h"

namespace pewter::cuda {

struct SampleRows {
  const float* logits = nullptr;  // [rows, stride]
  int64_t stride = 0;
  int rows = 0, vocab = 0, vocab_limit = 0;
  const SamplingRow* parameters = nullptr;
  const LogitEdit* edits = nullptr;
  const int32_t* edit_begin = nullptr;
  const uint32_t* masks = nullptr;
  int32_t* token = nullptr;
  float* logprob = nullptr;
  int32_t* top_token = nullptr;
  float* top_logprob = nullptr;
  float* edited = nullptr;  // scratch [rows, vocab]
};
void sample_rows(cudaStream_t stream, const SampleRows& args);

}  // namespace pewter::cuda
