#include "model/recurrent_state.h"

#include <algorithm>

namespace pewter {
namespace {

struct SlotParts {
  int64_t state, window, tape, gates;  // bytes of one layer
  int64_t total() const { return state + window + tape + gates; }
};

SlotParts slot_parts(const ModelConfig& config, DType activation) {
  const int64_t column = config.delta_channels() * dtype_bytes(activation);
  return {.state = config.value_heads * config.key_dim * config.value_dim * 4,
          .window = 3 * column,
          .tape = kMaxDecodeRows * column,
          .gates = kMaxDecodeRows * 2 * config.value_heads * 4};
}

}  // namespace

int64_t RecurrentState::slot_bytes(const ModelConfig& config, DType activation) {
  return config.count(LayerKind::kDelta) * slot_parts(config, activation).total();
}

Result<RecurrentState> RecurrentState::make(Device& device, const ModelConfig& config,
                                            DType activation, int64_t slots) {
  RecurrentState all;
  all.device_ = &device;
  all.slots_ = slots;
  const SlotParts parts = slot_parts(config, activation);
  const int64_t channels = config.delta_channels(), heads = config.value_heads;
  for (int64_t i = 0; i < config.count(LayerKind::kDelta); ++i) {
    TRY_ASSIGN(Buffer buffer, device.allocate(slots * parts.total()));
    std::byte* at = buffer.data();
    RecurrentLayer layer;
    layer.state = {at, DType::kF32, {slots, heads, config.key_dim, config.value_dim}};
    layer.gates = {at += slots * parts.state, DType::kF32, {slots, kMaxDecodeRows, 2, heads}};
    layer.window = {at += slots * parts.gates, activation, {slots, 3, channels}};
    layer.tape = {at += slots * parts.window, activation, {slots, kMaxDecodeRows, channels}};
    all.layers_.push_back(layer);
    all.buffers_.push_back(std::move(buffer));
  }
  for (int64_t slot = slots - 1; slot >= 0; --slot) all.free_.push_back(static_cast<int32_t>(slot));
  return all;
}

int32_t RecurrentState::take() {
  if (free_.empty()) return -1;
  const int32_t slot = free_.back();
  free_.pop_back();
  for (const RecurrentLayer& layer : layers_) {
    device_->zero(layer.state[slot].data(), layer.state[slot].bytes());
    device_->zero(layer.window[slot].data(), layer.window[slot].bytes());
  }
  return slot;
}

void RecurrentState::release(int32_t slot) {
  CHECK(slot >= 0 && slot < slots_ && std::find(free_.begin(), free_.end(), slot) == free_.end(),
        "slot ", slot, " is free");
  free_.push_back(slot);
}

int64_t RecurrentState::export_bytes() const {
  int64_t bytes = 0;
  for (const RecurrentLayer& layer : layers_)
    bytes += layer.state[0].bytes() + layer.window[0].bytes();
  return bytes;
}

void RecurrentState::export_slot(int32_t slot, std::span<std::byte> out) const {
  CHECK(static_cast<int64_t>(out.size()) == export_bytes(), "export into ", out.size(), " bytes");
  for (const RecurrentLayer& layer : layers_) {
    for (const TensorView& part : {layer.state[slot], layer.window[slot]}) {
      device_->copy_to_host(out.first(static_cast<size_t>(part.bytes())), part.data());
      out = out.subspan(static_cast<size_t>(part.bytes()));
    }
  }
}

void RecurrentState::import_slot(int32_t slot, std::span<const std::byte> bytes) {
  CHECK(static_cast<int64_t>(bytes.size()) == export_bytes(), "import of ", bytes.size(), " bytes");
  for (const RecurrentLayer& layer : layers_) {
    for (const TensorView& part : {layer.state[slot], layer.window[slot]}) {
      device_->copy_to_device(part.data(), bytes.first(static_cast<size_t>(part.bytes())));
      bytes = bytes.subspan(static_cast<size_t>(part.bytes()));
    }
  }
}

}  // namespace pewter
