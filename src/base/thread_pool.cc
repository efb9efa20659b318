#include "base/thread_pool.h"

#include <sched.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <fstream>
#include <string>

#include "base/check.h"

namespace pewter {
namespace {

// How long a thread that waits keeps its core. Long enough for the other threads' last items and
// for the short serial work between the loops of a step, short next to a scheduler's time slice.
constexpr std::chrono::microseconds kSpin{60};

inline void pause_core() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("isb" ::: "memory");  // yield is a no-op on most Arm cores
#endif
}

}  // namespace

template <typename Done>
uint64_t ThreadPool::wait(std::atomic<int>& sleepers, std::condition_variable& wake,
                          const Done& done) {
  // Looking at the clock costs more than a look at the word: once every 16.
  uint64_t state = 0;
  const auto stop = std::chrono::steady_clock::now() + kSpin;
  do {
    for (int i = 0; i < 16; ++i) {
      if (done(state = state_.load(std::memory_order_acquire))) return state;
      pause_core();
    }
  } while (std::chrono::steady_clock::now() < stop);
  std::unique_lock lock(mutex_);
  // Either this load of the state sees the change that notify() follows, or notify() sees the
  // sleeper: both are sequentially consistent.
  sleepers.fetch_add(1);
  while (!done(state = state_.load())) wake.wait(lock);
  sleepers.fetch_sub(1);
  return state;
}

void ThreadPool::notify(std::atomic<int>& sleepers, std::condition_variable& wake) {
  if (sleepers.load() == 0) return;
  {
    const std::lock_guard lock(mutex_);
  }  // the sleeper is either before its look or in wait()
  wake.notify_all();
}

ThreadPool::ThreadPool(int threads) {
  if (threads == 0) threads = available_threads();
  CHECK(threads > 0 && threads < static_cast<int>(kWorkers), "a pool of ", threads, " threads");
  for (int i = 1; i < threads; ++i) workers_.emplace_back([this] { worker(); });
}

ThreadPool::~ThreadPool() {
  state_.fetch_or(kStop);
  notify(idle_, wake_);
  for (std::thread& thread : workers_) thread.join();
}

void ThreadPool::take_items() {
  const IndexFunction& body = *body_;
  const int64_t count = count_;
  for (int64_t i; (i = next_.fetch_add(1, std::memory_order_relaxed)) < count;) body(i);
}

void ThreadPool::parallel_for(int64_t count, const IndexFunction& body) {
  if (workers_.empty() || count <= 1) {
    for (int64_t i = 0; i < count; ++i) body(i);
    return;
  }
  const uint64_t before = state_.load(std::memory_order_relaxed);
  CHECK((before & (kOpen | kWorkers)) == 0, "parallel_for inside parallel_for");
  body_ = &body;
  count_ = count;
  next_.store(0, std::memory_order_relaxed);
  state_.store(before + (kLoop | kOpen));
  notify(idle_, wake_);
  take_items();
  // Closed: nobody joins any more. The workers inside finish the item they have.
  const uint64_t inside = state_.fetch_and(~kOpen, std::memory_order_acq_rel) & kWorkers;
  if (inside != 0) wait(waiting_, done_, [](uint64_t state) { return (state & kWorkers) == 0; });
}

void ThreadPool::worker() {
  uint64_t seen = 0;  // the last loop joined
  while (true) {
    uint64_t state = wait(idle_, wake_, [&](uint64_t now) {
      return (now & kStop) != 0 || ((now & kOpen) != 0 && now / kLoop != seen);
    });
    if ((state & kStop) != 0) return;
    // Joining counts only while the loop is open; the exchange fails otherwise.
    if (!state_.compare_exchange_strong(state, state + 1, std::memory_order_acq_rel)) continue;
    seen = state / kLoop;
    take_items();
    if ((state_.fetch_sub(1) & (kOpen | kWorkers)) == 1) notify(waiting_, done_);
  }
}

int available_threads() {
  cpu_set_t set;
  CPU_ZERO(&set);
  int cores = 1;
  if (sched_getaffinity(0, sizeof(set), &set) == 0) cores = std::max(1, CPU_COUNT(&set));
  // cgroup v2: "max 100000" or "200000 100000".
  std::ifstream file("/sys/fs/cgroup/cpu.max");
  std::string quota;
  double period = 0;
  if (file >> quota >> period && quota != "max" && period > 0) {
    const double limit = std::ceil(std::strtod(quota.c_str(), nullptr) / period);
    if (limit >= 1) cores = std::min(cores, static_cast<int>(limit));
  }
  return cores;
}

}  // namespace pewter
