// Workers hands the items of a loop to the threads of a pool and tells each item which scratch it
// may use. What an item computes never depends on its worker, so the thread count changes no bit.
#pragma once

#include <algorithm>
#include <memory>

#include "base/thread_pool.h"

namespace pewter {

class Workers {
 public:
  explicit Workers(std::shared_ptr<ThreadPool> pool) : pool_(std::move(pool)) {}

  int64_t count() const { return pool_->threads(); }

  // body(item, worker) for every item; items of one worker run one after another. Allocates
  // nothing.
  template <typename Body>
  void run(int64_t items, const Body& body) {
    next_.store(0, std::memory_order_relaxed);
    const auto drain = [&](int64_t worker) {
      for (int64_t i; (i = next_.fetch_add(1, std::memory_order_relaxed)) < items;) body(i, worker);
    };
    pool_->parallel_for(std::min(count(), items), drain);
  }
  // For short work: on the calling thread while there are fewer than `worthwhile` items.
  template <typename Body>
  void run_if(int64_t items, int64_t worthwhile, const Body& body) {
    if (items >= worthwhile) return run(items, body);
    for (int64_t i = 0; i < items; ++i) body(i, 0);
  }

 private:
  std::shared_ptr<ThreadPool> pool_;
  std::atomic<int64_t> next_{0};
};

}  // namespace pewter
