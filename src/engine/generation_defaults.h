// What a checkpoint's generation_config.json asks for when a request leaves it open.
#pragma once

#include <string>
#include <vector>

#include "base/json.h"
#include "engine/request.h"

namespace pewter {

struct GenerationDefaults {
  SamplingParams sampling;             // neutral where the file says nothing
  std::vector<int32_t> eos_token_ids;  // the file has one id or a list

  // do_sample: false means greedy, whatever the other fields say. Fields this engine does not know
  // are left alone; null counts as absent. Errors: kCorruptData, naming the field.
  static Result<GenerationDefaults> parse(const Json& config);
  // Reads DIRECTORY/generation_config.json; a missing file gives neutral values.
  static Result<GenerationDefaults> load(const std::string& directory);
};

}  // namespace pewter
