// Numbers of 16 bits with five of exponent, as the compiler's own type computes them.
#pragma once

#include <bit>
#include <cstdint>

namespace emulator {

inline float half_value(uint16_t bits) { return static_cast<float>(std::bit_cast<_Float16>(bits)); }
inline uint16_t half_bits(float x) {  // to nearest even
  return std::bit_cast<uint16_t>(static_cast<_Float16>(x));
}

}  // namespace emulator
