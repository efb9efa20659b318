// OpTimer: how long work takes once the device is busy with it: recorded where the backend records
// steps, run again and again, and timed in batches. What a single launch costs is spread over many.
#pragma once

#include <functional>

#include "backend/device.h"

namespace pewter {

class OpTimer {
 public:
  static Result<OpTimer> make(Device& device);  // which outlives it

  // Seconds of one `enqueue`, the best of a few batches. It enqueues the same work every time.
  double seconds(const std::function<void()>& enqueue);

 private:
  explicit OpTimer(Device& device) : device_(&device) {}
  void finish();  // waits for all that was enqueued
  double seconds_of(const std::function<void()>& enqueue);

  Device* device_;
  Buffer word_;
};

}  // namespace pewter
