// A whole delta block of few rows of one sequence in one kernel: RMSNorm, projections, mixer,
// output projection.
#pragma once

#include "backend/cuda/delta/delta.h"
#include "backend/cuda/linear/net.h"

namespace pewter::cuda {

struct DeltaNet : NetProducts {
  DeltaArgs mix;
};

// Whether the block's products and mixer may run as one kernel here.
bool can_fuse(const Gpu& gpu, const DeltaNet& net);
void delta_net(cudaStream_t stream, const Gpu& gpu, const DeltaNet& net);

}  // namespace pewter::cuda
