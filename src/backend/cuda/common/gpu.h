// The GPU a kernel is launched on.
#pragma once

#include <cstdint>

namespace pewter::cuda {

// What a launch has to know of the GPU.
struct Gpu {
  int multiprocessors = 0;
  int64_t shared_bytes = 0;      // of a multiprocessor
  int64_t cache_bytes = 0;       // L2
  bool has_bulk_copies = false;  // into shared memory: compute capability 9.0
  // Matrix instructions of f16 sum integers below 2²⁴ without rounding one, as tests of compute
  // capability 9.0 have shown.
  bool adds_exactly = false;
};

}  // namespace pewter::cuda
