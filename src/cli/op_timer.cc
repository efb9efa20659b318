#include "cli/op_timer.h"

#include <algorithm>
#include <cmath>

#include "base/clock.h"

namespace pewter {
namespace {

constexpr double kBatchSeconds = 0.01;
constexpr int kBatches = 5;
// Work shorter than this is enqueued several times in a recording, so that starting one, a few
// microseconds on a GPU, does not count.
constexpr double kRecordingSeconds = 1e-3;
constexpr double kMostInARecording = 256;

}  // namespace

Result<OpTimer> OpTimer::make(Device& device) {
  OpTimer timer(device);
  TRY_ASSIGN(timer.word_, device.allocate(4));
  return timer;
}

void OpTimer::finish() {
  std::byte word[4];
  device_->copy_to_host(word, word_.data());
}

double OpTimer::seconds(const std::function<void()>& enqueue) {
  const double once = seconds_of(enqueue);
  const double times = std::ceil(std::min(kRecordingSeconds / once, kMostInARecording));
  if (times <= 1) return once;
  return seconds_of([&] {
           for (double i = 0; i < times; ++i) enqueue();
         }) /
         times;
}

double OpTimer::seconds_of(const std::function<void()>& enqueue) {
  const auto run = [&](int64_t times) {
    const Stopwatch watch;
    for (int64_t i = 0; i < times; ++i) device_->run_step(this, 0, enqueue);
    finish();
    return watch.seconds();
  };
  run(2);  // as it comes, then recorded
  int64_t runs = 1;
  double batch = run(runs);
  while (batch < kBatchSeconds) {
    runs *= std::clamp<int64_t>(static_cast<int64_t>(1.2 * kBatchSeconds / batch), 2, 64);
    batch = run(runs);
  }
  for (int i = 1; i < kBatches; ++i) batch = std::min(batch, run(runs));
  device_->forget_steps(this);
  return batch / static_cast<double>(runs);
}

}  // namespace pewter
