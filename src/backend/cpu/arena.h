// Arena: lays arrays out one after another in a block of memory. Without memory it only counts, so
// the same layout function first measures and then places.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

namespace pewter {

class Arena {
 public:
  Arena() = default;
  explicit Arena(std::byte* base) : base_(base) {}

  // An array aligned for any vector register; contents undefined.
  template <typename T>
  T* take(int64_t count) {
    const int64_t at = used_;
    used_ += (count * static_cast<int64_t>(sizeof(T)) + kAlignment - 1) / kAlignment * kAlignment;
    most_ = std::max(most_, used_);
    return base_ == nullptr ? nullptr : reinterpret_cast<T*>(base_ + at);
  }
  int64_t used() const { return used_; }
  int64_t most() const { return most_; }
  // Arrays taken since `used` was this may be overwritten by what is taken next.
  void rewind(int64_t used) { used_ = used; }

 private:
  static constexpr int64_t kAlignment = 64;
  std::byte* base_ = nullptr;
  int64_t used_ = 0, most_ = 0;
};

}  // namespace pewter
