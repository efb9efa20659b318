#include "checkpoint/data_checks.h"

#include <algorithm>
#include <cstring>

namespace pewter {
namespace {

constexpr size_t kWord = 8;

// First lane whose masked bits are all set: the exponent of a non-finite float, the code of an FP8
// NaN.
template <typename Lane>
int64_t find_full(std::span<const std::byte> bytes, Lane lane_mask) {
  constexpr uint64_t kOnes = ~uint64_t{0} / static_cast<Lane>(~Lane{0});
  constexpr uint64_t kTops = kOnes << (8 * sizeof(Lane) - 1);
  const uint64_t mask = kOnes * lane_mask;
  const size_t lanes = bytes.size() / sizeof(Lane);
  // Blocks without a hit, the usual case, run without a branch per word.
  constexpr size_t kBlock = 4096;
  for (size_t begin = 0; begin < lanes * sizeof(Lane); begin += kBlock) {
    const size_t end = std::min(begin + kBlock, lanes * sizeof(Lane));
    uint64_t hit = 0;
    size_t at = begin;
    for (; at + kWord <= end; at += kWord) {
      uint64_t word = 0;
      std::memcpy(&word, bytes.data() + at, kWord);
      const uint64_t x = (word & mask) ^ mask;  // a lane of zeros is what we look for
      hit |= (x - kOnes) & ~x & kTops;
    }
    if (hit == 0 && at == end) continue;
    for (size_t i = begin; i < end; i += sizeof(Lane)) {
      Lane lane = 0;
      std::memcpy(&lane, bytes.data() + i, sizeof(Lane));
      if ((lane & lane_mask) == lane_mask) return static_cast<int64_t>(i / sizeof(Lane));
    }
  }
  return -1;
}

}  // namespace

int64_t find_nonfinite(std::span<const std::byte> bytes, DType dtype) {
  switch (dtype) {
    case DType::kF32:
      return find_full<uint32_t>(bytes, 0x7F800000u);
    case DType::kF16:
      return find_full<uint16_t>(bytes, 0x7C00u);
    case DType::kBF16:
      return find_full<uint16_t>(bytes, 0x7F80u);
    default:
      CHECK(false, "find_nonfinite of ", dtype_name(dtype));
  }
}

int64_t find_fp8_nan(std::span<const std::byte> codes) { return find_full<uint8_t>(codes, 0x7Fu); }

}  // namespace pewter
