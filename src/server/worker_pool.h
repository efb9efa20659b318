// WorkerPool: threads for the work of a request that must delay neither a connection nor the
// engine: reading JSON, rendering a template, making tokens.
#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

namespace pewter::server {

class WorkerPool {
 public:
  explicit WorkerPool(int threads);
  ~WorkerPool() { stop(); }
  WorkerPool(const WorkerPool&) = delete;
  WorkerPool& operator=(const WorkerPool&) = delete;

  // Any thread. Jobs start in the order they came. After stop() they are dropped.
  void run(std::function<void()> job);
  // Waits for jobs that have begun; the others are dropped.
  void stop();

 private:
  void work();

  std::mutex mutex_;
  std::condition_variable wake_;
  std::deque<std::function<void()>> jobs_;  // guarded by mutex_, as is stopped_
  bool stopped_ = false;
  std::vector<std::thread> threads_;
};

}  // namespace pewter::server
