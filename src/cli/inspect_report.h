// What a checkpoint is made of and what it takes to run it, from headers alone. gather_report finds
// the facts; report_text and report_json say them.
#pragma once

#include <string>
#include <vector>

#include "cli/loaded_model.h"
#include "model/qwen35/footprint.h"

namespace pewter {

struct MemoryReport {
  int64_t context = 0;  // tokens the caches below are for
  // Without the prediction layer, which `pewter run` does not load.
  int64_t weight_bytes = 0, kv_bytes = 0, state_bytes = 0, scratch_bytes = 0;
  int64_t available_bytes = 0;
  int64_t needed() const { return weight_bytes + kv_bytes + state_bytes + scratch_bytes; }
};

struct InspectReport {
  std::string directory, quantisation, backend;
  int files = 0;
  ModelConfig config;
  bool with_mtp = false;
  Footprint footprint;
  MemoryReport memory;
  std::vector<std::string> warnings;
};

// Of the options: model, backend, lm_head and max_model_len (0: the context `pewter run` would
// choose). Errors: everything that is wrong with the
// checkpoint's headers and config.
Result<InspectReport> gather_report(const ModelOptions& options);

std::string report_text(const InspectReport& report);
Json report_json(const InspectReport& report);

}  // namespace pewter
