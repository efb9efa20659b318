// From what a person types to the directory that holds the model.
#pragma once

#include <string>
#include <vector>

#include "base/result.h"

namespace pewter {

struct ModelPath {
  std::string directory;           // holds config.json, the tokenizer, …
  std::vector<std::string> files;  // the safetensors files to read: names inside directory, sorted
  bool single_file = false;        // the path named one file: no index is looked at
};

// path may be
//   a directory with config.json and *.safetensors;
//   one .safetensors file with a config.json beside it;
//   a hub cache folder models--ORG--NAME: its only snapshot, or the one refs/main names.
// kNotFound says what was looked for and what is there instead.
Result<ModelPath> resolve_model_path(const std::string& path);

}  // namespace pewter
