// The experts' down products of steps with more rows than a block of threads routes for itself.
#pragma once

#include "backend/cuda/moe/experts.h"

namespace pewter::cuda {

// False, and nothing done, when it is not made for them: more than kFewRows rows, formats or widths
// that are not common, rows that are not routed yet.
bool down_many(cudaStream_t stream, const Gpu& gpu, const ExpertsDown& args);

}  // namespace pewter::cuda
