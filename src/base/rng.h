// Counter-based randomness: a number is a pure function of (seed, index), so that the draw for
// output index i does not depend on what else was drawn, and every backend computes the same one.
// The mixer is SplitMix64's finaliser (Steele, Lea, Flood 2014), applied twice; integer arithmetic
// only, so it is exact everywhere.
#pragma once

#include <cstdint>

namespace pewter {

constexpr uint64_t mix64(uint64_t x) {
  x += 0x9E3779B97F4A7C15u;
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9u;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EBu;
  return x ^ (x >> 31);
}

constexpr uint64_t random_bits(uint64_t seed, uint64_t index) {
  return mix64(mix64(seed) ^ (index * 0xD1342543DE82EF95u));
}

// Uniform in [0, 1) with 24 random bits: exact in float, the same value on every device.
constexpr float random_uniform(uint64_t seed, uint64_t index) {
  return static_cast<float>(random_bits(seed, index) >> 40) * 0x1p-24f;
}

// A stream for tests and benches.
class Rng {
 public:
  explicit Rng(uint64_t seed) : seed_(seed) {}
  uint64_t bits() { return random_bits(seed_, index_++); }
  float uniform() { return random_uniform(seed_, index_++); }
  float uniform(float low, float high) { return low + (high - low) * uniform(); }
  // In [0, bound). Bias below bound / 2^64.
  uint64_t below(uint64_t bound) { return bits() % bound; }
  // Approximately normal (sum of four uniforms, variance 1): enough for test inputs.
  float normal() { return (uniform() + uniform() + uniform() + uniform() - 2.0f) * 1.7320508f; }

 private:
  uint64_t seed_;
  uint64_t index_ = 0;
};

}  // namespace pewter
