// The experts' down products of few rows.
#pragma once

#include "backend/cuda/moe/experts.h"

namespace pewter::cuda {

// Warps of a block of threads: of the routed experts, one for each of a row, and of the shared one.
// Registers as for kBoundWarps, 72 a thread on Hopper, so that a block of the next kernel (nine
// warps of 96) fits beside one.
constexpr int kRoutedWarps = 8, kSharedWarps = 4, kBoundWarps = 14;

// False, and nothing done, when there are too many rows for it or they are too wide.
// Whether it is, for one row, and may be told of the choice by words (RouteWords).
bool hears_of_choice(const ExpertsDown& args);
bool down_few(cudaStream_t stream, const ExpertsDown& args);
// The same of one row that is told, for int4 experts and a shared one of int4 or fp8. args: such as
// down_few serves.
bool down_one(cudaStream_t stream, const ExpertsDown& args);

}  // namespace pewter::cuda
