#include "engine/waiting_rows.h"

namespace pewter {

Result<WaitingRows> WaitingRows::make(Device& device, const Sizes& sizes) {
  WaitingRows made;
  made.sizes_ = sizes;
  made.counts_.resize(static_cast<size_t>(sizes.slots));
  TRY_ASSIGN(made.memory_, device.allocate(sizes.bytes()));
  return made;
}

void WaitingRows::add(int32_t slot, int64_t rows) {
  CHECK(has_room(slot, rows), rows, " rows more than ", count(slot), " wait already");
  counts_[static_cast<size_t>(slot)] += rows;
}

TensorView WaitingRows::place(int32_t slot, int64_t plane, int64_t begin, int64_t end) const {
  const TensorView all(memory_.data(), sizes_.dtype,
                       {sizes_.planes * sizes_.slots * kMost, sizes_.width});
  const int64_t first = (plane * sizes_.slots + slot) * kMost;
  return all.slice(0, first + begin, first + end);
}

}  // namespace pewter
