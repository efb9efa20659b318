// ForwardingDevice: a device that hands everything on to another one, for those that watch what
// passes.
#pragma once

#include <memory>

#include "backend/device.h"

namespace pewter::test {

class ForwardingDevice : public Device {
 public:
  explicit ForwardingDevice(Device& device) : device_(device) {}  // which outlives it

  std::string_view name() const override { return device_.name(); }
  DeviceMemory memory() const override { return device_.memory(); }
  int64_t cache_bytes() const override { return device_.cache_bytes(); }
  Result<Buffer> allocate(int64_t bytes) override { return device_.allocate(bytes); }
  void copy_to_device(std::byte* to, std::span<const std::byte> from) override {
    device_.copy_to_device(to, from);
  }
  void copy_to_host(std::span<std::byte> to, const std::byte* from) override {
    device_.copy_to_host(to, from);
  }
  bool is_asynchronous() const override { return device_.is_asynchronous(); }
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
    device_.run_step(owner, key, enqueue);
  }
  int64_t recorded_bytes(int64_t passes) const override { return device_.recorded_bytes(passes); }
  void forget_steps(const void* owner) override { device_.forget_steps(owner); }
  int64_t kv_page_bytes(KvFormat format, int64_t kv_heads, int64_t head_dim) const override {
    return device_.kv_page_bytes(format, kv_heads, head_dim);
  }

 protected:
  Device& device_;
};

}  // namespace pewter::test
