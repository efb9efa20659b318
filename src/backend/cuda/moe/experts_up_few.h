// The experts' gate and up products of few rows.
#pragma once

#include "backend/cuda/moe/experts.h"

namespace pewter::cuda {

// False, and nothing done, when it is not made for them: more than kFewRouted rows, formats or
// widths that are not common, rows that are routed already.
// Whether it is, for one row, and the logits may reach it by words (RouteWords).
bool hears_of_logits(const Gpu& gpu, const ExpertsUp& args);
bool up_few(cudaStream_t stream, const Gpu& gpu, const ExpertsUp& args);

}  // namespace pewter::cuda
