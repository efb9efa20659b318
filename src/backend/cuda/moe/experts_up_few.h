// The experts' gate and up products of few rows.
#pragma once

#include "backend/cuda/moe/experts.h"

namespace pewter::cuda {

// False, and nothing done, when it is not made for them: more than kFewRouted rows, formats or
// widths that are not common, rows that are routed already.
bool up_few(cudaStream_t stream, const Gpu& gpu, const ExpertsUp& args);

}  // namespace pewter::cuda
