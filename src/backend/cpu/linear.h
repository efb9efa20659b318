// Projections as jobs: one loop over the workers computes several matrices, or several experts,
// times their input rows, so that a stage costs one hand-over to the threads.
#pragma once

#include <span>

#include "backend/cpu/inputs.h"
#include "backend/cpu/workers.h"

namespace pewter {

// out = x·Wᵀ, or silu(x·Wᵀ) ⊙ (x·Upᵀ) when `up` is given.
struct LinearJob {
  const WeightMatrix* w = nullptr;
  const WeightMatrix* up = nullptr;
  int64_t index = 0;  // of the matrix in both stacks
  InputRows x;
  int64_t m = 0;
  std::byte* const* out = nullptr;   // [m] rows of n elements
  float* const* residual = nullptr;  // [m] rows that `out` is added to, or null
  DType dtype = DType::kF32;         // of out
  int64_t out_offset_bytes = 0;      // from an out row to this job's first output
  int64_t first_item = 0;            // set by run_linear_jobs
};

// Outputs one item computes at most, for at most kItemRows inputs at a time.
inline constexpr int64_t kItemOutputs = 64, kItemRows = 128;

struct LinearScratch {
  float* results = nullptr;  // [2, kItemRows, kItemOutputs]
};

// Outputs [begin, end) of matrix `index` for m rows, in panels or canonical:
// out[r · out_stride + i − begin], with room for whole panels.
void multiply(const WeightMatrix& w, int64_t index, int64_t begin, int64_t end, const InputRows& x,
              int64_t m, float* out, int64_t out_stride);

// Runs every job over its outputs. `scratch` has one entry per worker.
void run_linear_jobs(Workers& workers, std::span<LinearJob> jobs, const LinearScratch* scratch);

}  // namespace pewter
