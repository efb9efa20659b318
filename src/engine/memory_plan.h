// What a model will take on a device, settled before any of it is taken: weights, KV pages, slots
// of recurrent state, scratch and recorded steps against a budget. Arithmetic alone, so that every
// machine can be planned for in a test.
#pragma once

#include <functional>

#include "engine/model_runner.h"

namespace pewter {

// Contexts of ordinary use: what an engine gets when nobody said how long, and model and memory
// have more to give.
inline constexpr int64_t kDefaultContext = 32768;
// As a context: the longest that fits.
inline constexpr int64_t kLongestContext = -1;
// Left to the rest of the machine where a GPU shares the host's memory: beyond it the machine
// swaps, or kills.
inline constexpr int64_t kUnifiedFloor = int64_t{8} << 30;

struct MemoryLimits {
  double gpu_utilization = 0.9;  // of the GPU's memory, with what others have taken
  int64_t host_bytes = 0;  // of the CPU's; 0: all but a tenth, at most a gigabyte, of the free
};
// What may be taken there now; at least 0.
int64_t memory_budget(const DeviceMemory& memory, const MemoryLimits& limits);

struct MemoryRequest {
  int64_t weight_bytes = 0, budget_bytes = 0;
  int64_t model_positions = 0;  // the longest context of the model
  int64_t context = 0;          // of a sequence; 0: chosen, kLongestContext
  int64_t cache_bytes = 0;      // of keys and values; 0: chosen
  // max_sequences are wanted, and become fewer where their states would take more than half of what
  // the weights leave.
  RunnerOptions runner;
};

struct MemoryPlan {
  int64_t weight_bytes = 0, budget_bytes = 0;
  RunnerMemory runner_bytes;
  int64_t context = 0;   // of a sequence
  RunnerOptions runner;  // with cache_tokens and max_sequences
  int64_t longest = 0;   // context of one sequence that would fit, at most the model's; 0: none
  int64_t needed() const { return weight_bytes + runner_bytes.total(); }
  bool fits() const { return needed() <= budget_bytes; }
};

// The cache holds `context` tokens for every sequence, or for as many as fit. A context that is
// chosen is the model's, at most kDefaultContext, halved until it fits. A plan may not fit: the
// caller says so. Error: kInvalidArgument when cache_bytes do not hold the context of one sequence.
Result<MemoryPlan> plan_memory(const MemoryRequest& request,
                               const std::function<RunnerMemory(const RunnerOptions&)>& bytes_of);

}  // namespace pewter
