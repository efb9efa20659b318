// The experts' gate and up products of few rows.
#pragma once

#include "backend/cuda/moe/experts.h"

namespace pewter::cuda {

// False, and nothing done, when it is not made for them: more than kFewRouted rows, formats or
// widths that are not common, rows that are routed already.
// Whether it is, for one row, and the logits may reach it by words (RouteWords).
bool hears_of_logits(const Gpu& gpu, const ExpertsUp& args);
bool up_few(cudaStream_t stream, const Gpu& gpu, const ExpertsUp& args);
// The same of one row whose logits arrive by words, for int4 and fp8. args: such as up_few serves.
bool up_one(cudaStream_t stream, const Gpu& gpu, const ExpertsUp& args);

// Blocks of threads of such a launch that have `bytes` of shared memory each, and those of them
// that the shared expert's tiles are shared out among.
struct UpGrid {
  int all, shared;
};
UpGrid grid_of(const Gpu& gpu, const ExpertsUp& args, int64_t bytes);

}  // namespace pewter::cuda
