// Ceilings: what the machine can do at best with as much of it as the backend uses, measured when
// asked: benches divide by them in the same process, so that a share means the same on a slow or
// busy machine.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace pewter {

enum class Arithmetic { kInt8Dot, kBF16Dot };

struct ArithmeticCeiling {
  double flops_per_second = 0;  // a multiply-add is two
  std::string instruction;      // "vpdpbusd"
  // False when this machine has no instruction for the type, and the figure is that of f32
  // multiply-adds.
  bool is_native = true;
};

// A read of memory, or a copy, whose bytes are those read and written.
enum class Traffic : uint8_t { kRead, kCopy };
constexpr std::string_view traffic_name(Traffic traffic) {
  return traffic == Traffic::kRead ? "read" : "copy";
}

class Ceilings {
 public:
  virtual ~Ceilings() = default;
  // Threads, or a GPU's multiprocessors; and in words.
  virtual int threads() const = 0;
  virtual std::string processors() const = 0;
  // Memory it takes to measure with, many times the last-level cache.
  virtual int64_t buffer_bytes() const = 0;
  // What benches of this backend divide by.
  virtual Traffic usual_traffic() const = 0;
  // The best of a few passes over that memory; a fraction of a second. Bytes a second.
  virtual double bandwidth(Traffic traffic) = 0;
  virtual ArithmeticCeiling arithmetic(Arithmetic kind) = 0;
};

}  // namespace pewter
