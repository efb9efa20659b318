// CountingDevice: a device that notes which steps it runs and when the host waits for it.
#pragma once

#include <mutex>
#include <utility>
#include <vector>

#include "support/forwarding_device.h"

namespace pewter::test {

class CountingDevice final : public ForwardingDevice {
 public:
  explicit CountingDevice(Device& device) : CountingDevice(device, device.is_asynchronous()) {}
  // asynchronous: what it says of itself.
  CountingDevice(Device& device, bool asynchronous)
      : ForwardingDevice(device), asynchronous_(asynchronous) {}

  // A letter for each since the last call: "s" a step, "w" a wait for a copy to the host.
  std::string take_events() {
    const std::lock_guard lock(mutex_);
    return std::exchange(events_, {});
  }
  // Keys of all steps, in order.
  const std::vector<uint64_t>& keys() const { return keys_; }
  // Copies to the device since the last call.
  int64_t take_copies() { return std::exchange(copies_, 0); }

  void copy_to_device(std::byte* to, std::span<const std::byte> from) override {
    copies_ += from.empty() ? 0 : 1;
    device_.copy_to_device(to, from);
  }
  void copy_to_host(std::span<std::byte> to, const std::byte* from) override {
    note('w');
    device_.copy_to_host(to, from);
  }
  HostCopy begin_copy_to_host(std::span<std::byte> to, const std::byte* from) override {
    return device_.begin_copy_to_host(to, from);
  }
  void finish(const HostCopy& copy) override {
    note('w');
    device_.finish(copy);
  }
  bool is_asynchronous() const override { return asynchronous_; }
  void run_step(const void* owner, uint64_t key, const std::function<void()>& enqueue) override {
    note('s');
    keys_.push_back(key);
    device_.run_step(owner, key, enqueue);
  }

 private:
  void note(char event) {
    const std::lock_guard lock(mutex_);
    events_ += event;
  }

  const bool asynchronous_;
  std::mutex mutex_;  // an engine's thread runs steps
  std::string events_;
  std::vector<uint64_t> keys_;
  int64_t copies_ = 0;
};

}  // namespace pewter::test
