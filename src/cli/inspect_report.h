// What a checkpoint is made of and what it takes to run it, from headers alone. gather_report finds
// the facts; report_text and report_json say them.
#pragma once

#include <string>
#include <vector>

#include "cli/loaded_model.h"
#include "model/qwen35/footprint.h"

namespace pewter {

struct InspectReport {
  std::string directory, quantisation, backend;
  int files = 0;
  ModelConfig config;
  bool with_mtp = false;
  Footprint footprint;
  MemoryReport memory;  // without the prediction layer, which `pewter run` does not load
  std::vector<std::string> warnings;
};

// The options are those of `pewter run`. Errors: everything that is wrong with the
// checkpoint's headers and config.
Result<InspectReport> gather_report(const ModelOptions& options);

std::string report_text(const InspectReport& report);
Json report_json(const InspectReport& report);

}  // namespace pewter
