// The sample op on the GPU (docs/numerics.md, Sampling).
#pragma once

#include <cuda_runtime_api.h>

#include "backend/ops.h"

namespace pewter::cuda {

// What a block of threads saw of a part of a row. Keys order candidates (sampling.cu); 0 is none.
inline constexpr int kSampleParts = 128;
struct SamplePart {
  unsigned long long largest = 0, best = 0;  // of all tokens; of those allowed, without edits
  double sum = 0;                            // of exponentials, the largest's being 1
  bool is_finite = true;
};

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
  float* edited = nullptr;      // scratch [rows, vocab]
  SamplePart* parts = nullptr;  // scratch [rows, kSampleParts]
};
void sample_rows(cudaStream_t stream, const SampleRows& args);

}  // namespace pewter::cuda
