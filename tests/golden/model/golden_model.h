// What the golden tests share: reference outputs read from safetensors files, and a checkpoint
// loaded on a backend.
#pragma once

#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <map>
#include <memory>

#include "backend/factory.h"
#include "engine/model_runner.h"
#include "model/qwen35/load.h"
#include "model/qwen35/model.h"

namespace pewter {

// All tensors of a golden file: floats and ids.
class Golden {
 public:
  static Golden open(const std::string& path);
  struct Floats {
    std::vector<int64_t> shape;
    std::vector<float> values;
    int64_t rows() const { return shape[0]; }
    int64_t cols() const { return shape.size() > 1 ? shape[1] : 1; }
    const float* row(int64_t i) const { return values.data() + i * cols(); }
  };
  const Floats& floats(const std::string& name) const { return floats_.at(name); }
  const std::vector<int32_t>& ids(const std::string& name) const { return ids_.at(name); }
  bool has(const std::string& name) const { return floats_.count(name) + ids_.count(name) > 0; }

 private:
  std::map<std::string, Floats> floats_;
  std::map<std::string, std::vector<int32_t>> ids_;
};

// A model on a backend of its own, and a runner for it.
struct LoadedGolden {
  Backend backend;
  Qwen35Model model;
  std::unique_ptr<ModelRunner> runner;
};
// device: as make_backend takes it. taps: layers whose residual is kept.
std::unique_ptr<LoadedGolden> load_golden(const std::string& directory, const std::string& device,
                                          const RunnerOptions& options, int threads = 0,
                                          LmHead head = LmHead::kAsStored,
                                          const std::vector<int64_t>& taps = {});

// And "cuda" in programs built with it.
std::vector<std::string> golden_devices(std::initializer_list<std::string> always);
// Why this machine cannot use it; empty: it can.
std::string why_unusable(const std::string& device);

// Folders: the committed fixtures, the bundled demo, and the optional shared material (empty when
// absent).
inline std::string golden_data(const std::string& name) {
  return std::string(PEWTER_SOURCE_DIR) + "/tests/golden/data/" + name;
}
inline std::string bundled_demo() { return std::string(PEWTER_SOURCE_DIR) + "/models/demo"; }
std::string shared_folder(const std::string& name);

// ‖a − b‖ / ‖b‖ of n values.
double relative_distance(const float* a, const float* b, int64_t n);
// The largest relative_distance of any row.
double worst_row(Device& device, const TensorView& ours, const Golden::Floats& golden);
// The relative_distance of the tensors as a whole. For bf16 activations: a single row may lie
// further off where an expert's rank is a near tie, or where the delta rule's output nearly cancels
// before its norm.
double whole_distance(Device& device, const TensorView& ours, const Golden::Floats& golden);
// A row of an activation tensor as floats.
std::vector<float> row_floats(Device& device, const TensorView& tensor, int64_t row);
// Writes values into a row of an activation tensor.
void set_row(Device& device, const TensorView& tensor, int64_t row, std::span<const float> values);

}  // namespace pewter
