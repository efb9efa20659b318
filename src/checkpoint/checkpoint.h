// A checkpoint: a model directory opened, its config read, every tensor of every file found and
// named canonically (tensor_names.h). No weight has been read yet; what a tensor means is for
// linear_source.h and the model to decide.
#pragma once

#include <string>
#include <unordered_map>
#include <vector>

#include "base/json.h"
#include "checkpoint/safetensors_file.h"

namespace pewter {

struct StoredTensor {
  std::string name;  // canonical
  TensorInfo info;
  int file = 0;  // index for Checkpoint::file
  int id = 0;    // its place in Checkpoint::tensors
  // Whether the index lists it. A tensor from outside that no parameter asks for is foreign, not
  // left over.
  bool indexed = true;
};

class Checkpoint {
 public:
  // Opens what resolve_model_path finds. Errors list all that the index and the headers have wrong,
  // with file and tensor: a file or tensor the index names that is not there, one name in two
  // files, two spellings of one parameter, every broken header rule.
  static Result<Checkpoint> open(const std::string& path);

  const std::string& directory() const { return directory_; }
  const Json& config() const { return config_; }
  const std::vector<StoredTensor>& tensors() const { return tensors_; }
  // By canonical name; nullptr when there is none.
  const StoredTensor* find(std::string_view name) const;
  const SafetensorsFile& file(int index) const { return files_[static_cast<size_t>(index)]; }
  int file_count() const { return static_cast<int>(files_.size()); }
  // The file's name, for messages.
  const std::string& file_name(const StoredTensor& tensor) const {
    return file(tensor.file).name();
  }
  // What is odd and does not stop a load: tensors the index does not list.
  const std::vector<std::string>& warnings() const { return warnings_; }

 private:
  Checkpoint() = default;
  void collect_tensors(const std::unordered_map<std::string, std::string>& index,
                       Findings& findings);

  std::string directory_;
  Json config_;
  std::vector<SafetensorsFile> files_;
  std::vector<StoredTensor> tensors_;
  std::unordered_map<std::string_view, int> by_name_;  // views of tensors_[i].name
  std::vector<std::string> warnings_;
};

}  // namespace pewter
