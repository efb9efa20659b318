// Loads a Qwen3.5 checkpoint onto a device: plans (load_plan.h), refuses what does not fit, then
// reads with several threads while the data rules are checked and the device stores the rows before
// (backend/row_uploader.h).
#pragma once

#include <functional>

#include "backend/device.h"
#include "model/qwen35/load_plan.h"

namespace pewter {

// Bytes a plan's parameters take on a device, without those of the drafting layer when it is left
// out.
int64_t stored_bytes(const LoadPlan& plan, const Device& device, bool with_mtp = true);

struct LoadOptions {
  int threads = 0;  // 0: chosen from the machine
  MtpUse mtp = MtpUse::kWhenPresent;
  LmHead head = LmHead::kAsStored;
  // Called when the headers are in order, before memory is taken; an error ends the load.
  std::function<Status(const LoadPlan&)> on_plan;
  // Read past the page cache: empty decides per file, by whether it is cached already.
  std::optional<bool> direct_io;
  // Called from loading threads, one at a time, several times a second and once at the end.
  std::function<void(int64_t bytes_done, int64_t bytes_total)> progress;
};

struct LoadReport {
  int64_t file_bytes = 0;    // read from disk
  int64_t stored_bytes = 0;  // taken on the device
  double seconds = 0;
  std::vector<std::string> warnings;
  double bytes_per_second() const {
    return seconds > 0 ? static_cast<double>(file_bytes) / seconds : 0;
  }
};

struct LoadedWeights {
  ModelWeights weights;
  LoadReport report;
};

// Errors: everything that is wrong with the checkpoint in one list, header faults before any weight
// memory is taken, data faults after the whole of it was read; kResourceExhausted with the numbers
// when it does not fit.
Result<LoadedWeights> load_weights(const Checkpoint& checkpoint, const ModelConfig& config,
                                   Device& device, const LoadOptions& options = {});

}  // namespace pewter
