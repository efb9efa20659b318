// The innermost loops of the CPU's ceilings, one per instruction set, chosen for the machine the
// program runs on.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "backend/ceilings.h"

namespace pewter {

// Reads bytes (a multiple of 1024) from `from`, aligned to 64; the exclusive-or of them all.
using ReadLoop = uint64_t (*)(const std::byte* from, int64_t bytes);
ReadLoop read_loop();

struct PeakLoop {
  void (*run)(int64_t steps) = nullptr;
  double operations_per_step = 0;
  const char* instruction = "";
  bool is_native = true;
};
// Those worth trying: the fastest is the ceiling. Never empty.
std::vector<PeakLoop> peak_loops(Arithmetic kind);

}  // namespace pewter
