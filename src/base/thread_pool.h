// A fixed set of threads that run one loop at a time. Work items are indexes: what an item computes
// must not depend on which thread runs it, and then the number of threads never changes a bit of
// the result.
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
  void take_items(const IndexFunction& body, int64_t count);

  std::vector<std::thread> workers_;
  std::mutex mutex_;
  std::condition_variable wake_, done_;
  const IndexFunction* body_ =
      nullptr;  // guarded by mutex_, as are count_, generation_, running_, stop_
  int64_t count_ = 0;
  uint64_t generation_ = 0;
  int running_ = 0;
  bool stop_ = false;
  std::atomic<int64_t> next_{0};
};

// Cores this process may use: its affinity mask, cut by the cgroup's CPU quota (rounded up), at
// least 1.
int available_threads();

}  // namespace pewter
