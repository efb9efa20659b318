// The memory a model will take on a device, planned before any of it is taken, and how that is
// said: as a table, or as a refusal with the numbers and what would help.
#pragma once

#include <optional>
#include <string>

#include "backend/factory.h"
#include "engine/memory_plan.h"
#include "model/dflash/model.h"

namespace pewter {

struct MemoryReport {
  std::string device;
  DeviceMemory memory;  // before anything is taken
  MemoryLimits limits;
  int64_t cache_bytes = 0;  // as asked for
  MemoryPlan plan;
};

struct MemoryOptions {
  MemoryLimits limits;
  int64_t context = 0;  // as MemoryRequest has it, as are the next two
  int64_t cache_bytes = 0;
  RunnerOptions runner;
  bool with_mtp = false;                   // the MTP layer is loaded, and has a cache of its own
  std::optional<DflashPlan> drafter = {};  // is loaded beside the model
};
// Errors: kInvalidArgument for options that exclude each other.
Result<MemoryReport> plan_model_memory(const Backend& backend, const ModelConfig& config,
                                       int64_t weight_bytes, const MemoryOptions& options);
// Of a device of this name with this memory.
Result<MemoryReport> plan_model_memory(
    const std::string& device, const DeviceMemory& memory, int64_t model_positions,
    int64_t weight_bytes, const MemoryOptions& options,
    const std::function<RunnerMemory(const RunnerOptions&)>& bytes_of);

std::string memory_table(const MemoryReport& report);

// Error: kResourceExhausted, one line.
Status check_fits(const std::string& model, const MemoryReport& report);

}  // namespace pewter
