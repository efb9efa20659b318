// A fixed set of threads that run one loop at a time. Work items are indexes: what an item computes
// must not depend on which thread runs it, and then the number of threads never changes a bit of
// the result.
//
// A decode step is a hundred loops of some tens of microseconds, so threads that wait first spin,
// for about as long as one such loop, and then sleep: a core that somebody else wants is given
// back, and a thread that was descheduled holds up the others by the one item it took and not by
// the loop: who has not joined a loop when its items run out is not waited for.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <thread>
#include <vector>

namespace pewter {

// A borrowed callable void(int64_t): two pointers, never allocates, lives as long as the callable
// it points to.
class IndexFunction {
 public:
  template <typename F>
  IndexFunction(const F& f)  // NOLINT: implicit on purpose
      : object_(&f),
        call_([](const void* object, int64_t i) { (*static_cast<const F*>(object))(i); }) {}
  void operator()(int64_t i) const { call_(object_, i); }

 private:
  const void* object_;
  void (*call_)(const void*, int64_t);
};

class ThreadPool {
 public:
  // threads counts the caller: 1 runs everything in place. 0 asks for available_threads().
  explicit ThreadPool(int threads);
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  int threads() const { return static_cast<int>(workers_.size()) + 1; }

  // Calls body(0) … body(count - 1), each once, on the caller and the workers, and returns when all
  // are done. Items are taken from a shared counter, so a slow core takes fewer. Does not allocate.
  // One loop at a time; a body must not start another loop on the same pool.
  void parallel_for(int64_t count, const IndexFunction& body);

 private:
  void worker();
  void take_items();
  // Returns once done(state_) holds, having slept when that took long.
  template <typename Done>
  uint64_t wait(std::atomic<int>& sleepers, std::condition_variable& wake, const Done& done);
  void notify(std::atomic<int>& sleepers, std::condition_variable& wake);

  // One word says which loop it is, whether it may be joined, and how many workers are in it.
  static constexpr uint64_t kWorkers = 0xFFFF, kOpen = 0x10000, kStop = 0x20000, kLoop = 0x40000;

  std::vector<std::thread> workers_;
  std::atomic<uint64_t> state_{0};
  // Of the loop that is open, or was; written while none is.
  const IndexFunction* body_ = nullptr;
  int64_t count_ = 0;
  alignas(64) std::atomic<int64_t> next_{0};
  // Those that sleep: workers for the next loop, the caller for the last worker.
  alignas(64) std::mutex mutex_;
  std::condition_variable wake_, done_;
  std::atomic<int> idle_{0}, waiting_{0};
};

// Cores this process may use: its affinity mask, cut by the cgroup's CPU quota (rounded up), at
// least 1.
int available_threads();

}  // namespace pewter
