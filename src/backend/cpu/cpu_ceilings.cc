#include "backend/cpu/cpu_ceilings.h"

#include <sys/mman.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>

#include "backend/cpu/peak_loops.h"
#include "base/clock.h"
#include "base/memory_info.h"

namespace pewter {
namespace {

constexpr int64_t kMiB = int64_t{1} << 20;
constexpr int64_t kPieceBytes = 4 * kMiB;  // what a thread takes at a time
// A run lasts about as long as what it is compared with. Shorter ones would catch moments in which
// a neighbour leaves a core's other half alone, and call that the ceiling of seconds of work.
constexpr double kRunSeconds = 0.1;
constexpr int kRuns = 3;
constexpr int64_t kFirstSteps = 20000;

}  // namespace

CpuCeilings::CpuCeilings(int threads)
    : pool_(threads),
      buffer_bytes_(std::max(512 * kMiB, 4 * last_level_cache_bytes()) / kPieceBytes *
                    kPieceBytes) {}

double CpuCeilings::bandwidth(Traffic traffic) {
  const int64_t pieces = buffer_bytes_ / kPieceBytes;
  if (buffer_.data() == nullptr) {
    constexpr int64_t kHugePage = 2 * kMiB;
    void* data =
        std::aligned_alloc(static_cast<size_t>(kHugePage), static_cast<size_t>(buffer_bytes_));
    if (data == nullptr) return 0;
    buffer_ = Buffer(data, buffer_bytes_, [](void* p, int64_t) { std::free(p); });
    ::madvise(data, static_cast<size_t>(buffer_bytes_), MADV_HUGEPAGE);
    pool_.parallel_for(pieces, [&](int64_t i) {
      std::memset(buffer_.data() + i * kPieceBytes, static_cast<int>(i & 0x7F), kPieceBytes);
    });
  }
  const ReadLoop loop = read_loop();
  std::atomic<uint64_t> sum{0};
  const auto piece = [&](int64_t i) { return buffer_.data() + i * kPieceBytes; };
  const auto pass = [&] {
    if (traffic == Traffic::kRead)
      pool_.parallel_for(pieces, [&](int64_t i) {
        sum.fetch_xor(loop(piece(i), kPieceBytes), std::memory_order_relaxed);
      });
    else
      pool_.parallel_for(pieces / 2, [&](int64_t i) {
        std::memcpy(piece(pieces / 2 + i), piece(i), kPieceBytes);
      });
    return static_cast<double>((traffic == Traffic::kRead ? pieces : pieces / 2 * 2) * kPieceBytes);
  };
  double best = 0;
  for (int run = 0; run < kRuns; ++run) {
    const Stopwatch watch;
    double bytes = 0;
    do bytes += pass();
    while (watch.seconds() < kRunSeconds);
    best = std::max(best, bytes / watch.seconds());
  }
  // Of the sum nothing is known but that it was needed.
  return sum.load() == 1 ? best * (1 + 1e-12) : best;
}

ArithmeticCeiling CpuCeilings::arithmetic(Arithmetic kind) {
  ArithmeticCeiling ceiling;
  for (const PeakLoop& peak : peak_loops(kind)) {
    const auto seconds_of = [&](int64_t steps) {
      const Stopwatch watch;
      pool_.parallel_for(pool_.threads(), [&](int64_t) { peak.run(steps); });
      return watch.seconds();
    };
    int64_t steps = kFirstSteps;
    while (seconds_of(steps) < kRunSeconds) steps *= 2;
    for (int i = 0; i < kRuns; ++i) {
      const double operations = static_cast<double>(steps) * peak.operations_per_step *
                                static_cast<double>(pool_.threads());
      const double rate = operations / seconds_of(steps);
      if (rate > ceiling.flops_per_second)
        ceiling = {
            .flops_per_second = rate, .instruction = peak.instruction, .is_native = peak.is_native};
    }
  }
  return ceiling;
}

}  // namespace pewter
