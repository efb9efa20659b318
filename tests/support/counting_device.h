// CountingDevice: a device that notes which steps it runs and when the host waits for it.
#pragma once

#include "backend/device.h"

namespace pewter::test {

class CountingDevice final : public Device {
 public:
  explicit CountingDevice(Device& device) : device_(device) {}

  // A letter for each since the last call: "s" a step, "w" a copy to the host, which is a wait.
  std::string take_events() { return std::exchange(events_, {}); }
  // Copies to the device since the last call.
  int64_t take_copies() { return std::exchange(copies_, 0); }

  std::string_view name() const override { return device_.name(); }
  DeviceMemory memory() const override { return device_.memory(); }
  int64_t cache_bytes() const override { return device_.cache_bytes(); }
  Result<Buffer> allocate(int64_t bytes) override { return device_.allocate(bytes); }
  void copy_to_device(std::byte* to, std::span<const std::byte> from) override {
    copies_ += from.empty() ? 0 : 1;
    device_.copy_to_device(to, from);
  }
  void copy_to_host(std::span<std::byte> to, const std::byte* from) override {
    events_ += 'w';
    device_.copy_to_host(to, from);
  }
  void zero(std::byte* at, int64_t bytes) override { device_.zero(at, bytes); }
  Result<WeightMatrix> make_weight(const WeightSpec& spec) override {
    return device_.make_weight(spec);
  }
  void store_rows(WeightMatrix& w, int64_t index, int64_t row_begin,
                  const WeightMatrix& rows) override {
    device_.store_rows(w, index, row_begin, rows);
  }
  int64_t stored_weight_bytes(const WeightSpec& spec) const override {
    return device_.stored_weight_bytes(spec);
  }
  void run_step(const void* owner, uint64_t key, const std::function<void()>& enqueue) override {
    events_ += 's';
    device_.run_step(owner, key, enqueue);
  }
  int64_t recorded_bytes() const override { return device_.recorded_bytes(); }
  void forget_steps(const void* owner) override { device_.forget_steps(owner); }
  int64_t kv_page_bytes(KvFormat format, int64_t kv_heads, int64_t head_dim) const override {
    return device_.kv_page_bytes(format, kv_heads, head_dim);
  }

 private:
  Device& device_;
  std::string events_;
  int64_t copies_ = 0;
};

}  // namespace pewter::test
