// WaitingRows: what a drafter has yet to read of sequences that it does not draft for: the target's
// outputs for their last committed positions, at most kMost of each. So a drafter that is not used
// makes its keys and values for many positions at once, seldom, instead of a few at every step.
#pragma once

#include <vector>

#include "backend/device.h"
#include "tensor/buffer.h"

namespace pewter {

class WaitingRows {
 public:
  static constexpr int64_t kMost = 32;

  struct Sizes {
    int64_t slots = 1, planes = 1;  // planes: outputs of one position
    int64_t width = 0;              // of one
    DType dtype = DType::kF32;
    int64_t bytes() const { return planes * slots * kMost * width * dtype_bytes(dtype); }
  };
  // Error: kResourceExhausted.
  static Result<WaitingRows> make(Device& device, const Sizes& sizes);

  // Nothing waits in this slot any more.
  void clear(int32_t slot) { counts_[static_cast<size_t>(slot)] = 0; }
  int64_t count(int32_t slot) const { return counts_[static_cast<size_t>(slot)]; }
  bool has_room(int32_t slot, int64_t rows) const { return count(slot) + rows <= kMost; }
  // [count, width], the oldest first.
  TensorView rows(int32_t slot, int64_t plane) const { return place(slot, plane, 0, count(slot)); }
  // Where further rows of a plane belong; after all planes were written, add them.
  TensorView next(int32_t slot, int64_t plane, int64_t rows) const {
    return place(slot, plane, count(slot), count(slot) + rows);
  }
  void add(int32_t slot, int64_t rows);

 private:
  TensorView place(int32_t slot, int64_t plane, int64_t begin, int64_t end) const;

  Sizes sizes_;
  Buffer memory_;  // [planes, slots, kMost, width]
  std::vector<int64_t> counts_;
};

}  // namespace pewter
