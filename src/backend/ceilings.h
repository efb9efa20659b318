// Ceilings: what the machine can do at best with as many threads as the backend uses, measured when
// asked: benches divide by them in the same process, so that a share means the same on a slow or
// busy machine.
#pragma once

#include <string>

namespace pewter {

enum class Arithmetic { kInt8Dot, kBF16Dot };

struct ArithmeticCeiling {
  double flops_per_second = 0;  // a multiply-add is two
  std::string instruction;      // "vpdpbusd"
  // False when this machine has no instruction for the type, and the figure is that of f32
  // multiply-adds.
  bool is_native = true;
};

class Ceilings {
 public:
  virtual ~Ceilings() = default;
  virtual int threads() const = 0;
  // Memory it takes to measure with, many times the last-level cache.
  virtual int64_t buffer_bytes() const = 0;
  // The best of a few passes over that memory; a fraction of a second. Bytes a second.
  virtual double read_bandwidth() = 0;
  virtual ArithmeticCeiling arithmetic(Arithmetic kind) = 0;
};

}  // namespace pewter
