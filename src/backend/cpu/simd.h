// Which instruction sets the kernels are compiled for. A kernel file compiles itself once per
// target and the best one is chosen at start: AVX-512, AVX2 with FMA and F16C, or four emulated
// lanes; NEON on Arm. Include before <hwy/foreach_target.h>.
//
// The number of lanes differs between targets, and with it the order of sums. Within a run it is
// fixed, which is all the row law asks for.
#pragma once

// The names are macros of <hwy/detect_targets.h>, which reads this one.
// SSSE3 and SSE4 machines lack FMA and half floats and would only cost build time. SVE's vectors
// have no size at compile time, so they cannot be kept in arrays of accumulators.
#define HWY_DISABLED_TARGETS \
  (HWY_SSSE3 | HWY_SSE4 | HWY_AVX3_DL | HWY_SVE | HWY_SVE2 | HWY_SVE_256 | HWY_SVE2_128)
