#include "base/thread_pool.h"

#include <sched.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <string>

#include "base/check.h"

namespace pewter {

ThreadPool::ThreadPool(int threads) {
  if (threads == 0) threads = available_threads();
  CHECK(threads > 0, "a pool of ", threads, " threads");
  for (int i = 1; i < threads; ++i) workers_.emplace_back([this] { worker(); });
}

ThreadPool::~ThreadPool() {
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
  }
  wake_.notify_all();
  for (std::thread& thread : workers_) thread.join();
}

void ThreadPool::take_items(const IndexFunction& body, int64_t count) {
  for (int64_t i; (i = next_.fetch_add(1, std::memory_order_relaxed)) < count;) body(i);
}

void ThreadPool::parallel_for(int64_t count, const IndexFunction& body) {
  if (workers_.empty() || count <= 1) {
    for (int64_t i = 0; i < count; ++i) body(i);
    return;
  }
  {
    const std::lock_guard lock(mutex_);
    CHECK(body_ == nullptr, "parallel_for inside parallel_for");
    body_ = &body;
    count_ = count;
    next_.store(0, std::memory_order_relaxed);
    running_ = static_cast<int>(workers_.size());
    ++generation_;
  }
  wake_.notify_all();
  take_items(body, count);
  std::unique_lock lock(mutex_);
  done_.wait(lock, [this] { return running_ == 0; });
  body_ = nullptr;
}

void ThreadPool::worker() {
  uint64_t seen = 0;
  std::unique_lock lock(mutex_);
  while (true) {
    wake_.wait(lock, [&] { return stop_ || generation_ != seen; });
    if (stop_) return;
    seen = generation_;
    const IndexFunction& body = *body_;
    const int64_t count = count_;
    lock.unlock();
    take_items(body, count);
    lock.lock();
    if (--running_ == 0) done_.notify_one();
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
