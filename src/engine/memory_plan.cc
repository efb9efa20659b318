#include "engine/memory_plan.h"

#include <algorithm>

namespace pewter {
namespace {

constexpr int64_t kGigabyte = int64_t{1} << 30;

class Planner {
 public:
  Planner(const MemoryRequest& request,
          const std::function<RunnerMemory(const RunnerOptions&)>& bytes_of)
      : request_(request), bytes_of_(bytes_of) {
    plan_ = {.weight_bytes = request.weight_bytes,
             .budget_bytes = request.budget_bytes,
             .runner = request.runner};
  }

  Result<MemoryPlan> run() {
    lower_sequences();
    plan_.longest = request_.cache_bytes > 0 ? 0 : longest_context(1);
    if (request_.cache_bytes > 0) {
      TRY(take_given_cache());
    } else {
      choose_context();
      choose_cache();
    }
    plan_.runner_bytes = bytes_of_(plan_.runner);
    return plan_;
  }

 private:
  // With a cache of so many tokens.
  RunnerMemory with_cache(int64_t tokens) const {
    RunnerOptions options = plan_.runner;
    options.cache_tokens = tokens;
    return bytes_of_(options);
  }
  bool fits(int64_t tokens) const {
    return request_.weight_bytes + with_cache(tokens).total() <= request_.budget_bytes;
  }

  // States come before caches: a sequence without one cannot run at all.
  void lower_sequences() {
    const int64_t left = request_.budget_bytes - request_.weight_bytes;
    while (plan_.runner.max_sequences > 1 && with_cache(kPageTokens).state_bytes > left / 2)
      plan_.runner.max_sequences /= 2;
  }

  // The most tokens, whole pages up to the model's end, that `sequences` may have each; 0: none.
  int64_t longest_context(int64_t sequences) const {
    int64_t low = 0, high = pages_for(request_.model_positions);  // pages; low fit
    while (low < high) {
      const int64_t pages = (low + high + 1) / 2;
      if (fits(pages * kPageTokens * sequences))
        low = pages;
      else
        high = pages - 1;
    }
    return std::min(low * kPageTokens, request_.model_positions);
  }

  Status take_given_cache() {
    const int64_t page = std::max<int64_t>(with_cache(kPageTokens).kv_bytes, 1);
    const int64_t tokens = request_.cache_bytes / page * kPageTokens;
    const int64_t least = std::max(request_.context, kPageTokens);
    plan_.runner.cache_tokens = tokens;
    plan_.context = request_.context;
    if (tokens < least)
      return Error{ErrorCode::kInvalidArgument,
                   str_cat("--kv-cache-memory-bytes: ", request_.cache_bytes, " hold ", tokens,
                           " tokens, not the ", least, " of one sequence")};
    if (request_.context == 0)
      plan_.context = std::min({request_.model_positions, kDefaultContext, tokens});
    if (request_.context == kLongestContext)
      plan_.context = std::min(
          request_.model_positions,
          std::max(tokens / plan_.runner.max_sequences / kPageTokens, int64_t{1}) * kPageTokens);
    return {};
  }

  void choose_context() {
    plan_.context = request_.context;
    if (request_.context == kLongestContext) {
      plan_.context = std::max(longest_context(plan_.runner.max_sequences),
                               std::min(kPageTokens, request_.model_positions));
    } else if (request_.context == 0) {
      plan_.context = std::min(request_.model_positions, kDefaultContext);
      while (plan_.context > kPageTokens && !fits(plan_.context)) plan_.context /= 2;
    }
  }

  // A whole context for each sequence, or for as many as fit; at least one.
  void choose_cache() {
    const int64_t pages = pages_for(plan_.context);
    int64_t sequences = plan_.runner.max_sequences;
    while (sequences > 1 && !fits(pages * kPageTokens * sequences)) --sequences;
    plan_.runner.cache_tokens = pages * kPageTokens * sequences;
  }

  const MemoryRequest& request_;
  const std::function<RunnerMemory(const RunnerOptions&)>& bytes_of_;
  MemoryPlan plan_;
};

}  // namespace

int64_t memory_budget(const DeviceMemory& memory, const MemoryLimits& limits) {
  int64_t budget = 0;
  if (memory.kind == MemoryKind::kHost) {
    budget = limits.host_bytes > 0 ? std::min(limits.host_bytes, memory.free)
                                   : memory.free - std::min(kGigabyte, memory.free / 10);
  } else {
    const auto usable =
        static_cast<int64_t>(limits.gpu_utilization * static_cast<double>(memory.total));
    budget = std::min(usable - (memory.total - memory.free), memory.free);
    if (memory.kind == MemoryKind::kUnified) budget = std::min(budget, memory.free - kUnifiedFloor);
  }
  return std::max<int64_t>(budget, 0);
}

Result<MemoryPlan> plan_memory(const MemoryRequest& request,
                               const std::function<RunnerMemory(const RunnerOptions&)>& bytes_of) {
  return Planner(request, bytes_of).run();
}

}  // namespace pewter
