// What a kernel fetches into the L2 cache for those behind it.
#pragma once

#include <cstdint>

namespace pewter::cuda {

constexpr int kMostPrefetched = 6;         // matrices
constexpr int kPrefetchPiece = 16 * 1024;  // bytes, asked for at once

struct Prefetch {
  const uint8_t* from[kMostPrefetched] = {};
  int bytes[kMostPrefetched] = {};  // multiples of 16
  int count = 0;
};

}  // namespace pewter::cuda
