// The recurrent state of every Gated DeltaNet layer, in slots: one slot a sequence. See
// RecurrentLayer for what a slot holds. A slot must be folded (its accepted tape rows applied)
// before it is exported.
#pragma once

#include <vector>

#include "backend/batch.h"
#include "model/model_config.h"

namespace pewter {

class RecurrentState {
 public:
  static Result<RecurrentState> make(Device& device, const ModelConfig& config, DType activation,
                                     int64_t slots);
  // Bytes one slot takes on the device, tape included.
  static int64_t slot_bytes(const ModelConfig& config, DType activation);

  RecurrentLayer layer(int64_t index) const { return layers_[static_cast<size_t>(index)]; }
  int64_t slots() const { return slots_; }
  int64_t free_slots() const { return static_cast<int64_t>(free_.size()); }

  // A zeroed slot (the state of an empty sequence), or -1.
  int32_t take();
  void release(int32_t slot);

  // Committed state and windows of all layers as bytes, and back; not the tape.
  int64_t export_bytes() const;
  void export_slot(int32_t slot, std::span<std::byte> out) const;
  void import_slot(int32_t slot, std::span<const std::byte> bytes);

 private:
  Device* device_ = nullptr;
  int64_t slots_ = 0;
  std::vector<Buffer> buffers_;
  std::vector<RecurrentLayer> layers_;
  std::vector<int32_t> free_;
};

}  // namespace pewter
