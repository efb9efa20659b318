// CountingDevice: a device that notes which steps it runs and when the host waits for it.
#pragma once

#include <utility>

#include "support/forwarding_device.h"

namespace pewter::test {

class CountingDevice final : public ForwardingDevice {
 public:
  using ForwardingDevice::ForwardingDevice;

  // A letter for each since the last call: "s" a step, "w" a copy to the host, which is a wait.
  std::string take_events() { return std::exchange(events_, {}); }
  // Copies to the device since the last call.
  int64_t take_copies() { return std::exchange(copies_, 0); }

  void copy_to_device(std::byte* to, std::span<const std::byte> from) override {
    copies_ += from.empty() ? 0 : 1;
    device_.copy_to_device(to, from);
  }
  void copy_to_host(std::span<std::byte> to, const std::byte* from) override {
    events_ += 'w';
    device_.copy_to_host(to, from);
  }
  void run_step(const void* owner, uint64_t key, const std::function<void()>& enqueue) override {
    events_ += 's';
    device_.run_step(owner, key, enqueue);
  }

 private:
  std::string events_;
  int64_t copies_ = 0;
};

}  // namespace pewter::test
