// From a checkpoint and a config to what will be read: every parameter matched to the tensors that
// hold it, exactly once, before any memory is taken. All that is wrong is collected.
#pragma once

#include "checkpoint/linear_source.h"
#include "model/qwen35/parameters.h"

namespace pewter {

// What to do with the drafting layer.
enum class MtpUse {
  kSkip,         // its tensors are not looked at
  kWhenPresent,  // loaded when the file has any of it; then it must have all of it
  kRequired,
};

struct MatrixPlan {
  MatrixParameter parameter;
  WeightSpec spec;                    // of the whole stack
  std::vector<LinearSource> sources;  // parameter.count of them
};

struct VectorPlan {
  VectorParameter parameter;
  const StoredTensor* tensor = nullptr;

  // Floats it takes on the device: whole cache lines, so that every vector starts at one.
  int64_t stored_elements() const { return (parameter.elements() + 15) / 16 * 16; }
};

// Borrows the checkpoint and the ModelWeights its targets point into.
struct LoadPlan {
  std::vector<MatrixPlan> matrices;
  std::vector<VectorPlan> vectors;
  bool with_mtp = false;

  int64_t file_bytes() const;
};

// The header rules: names, shapes, types, formats against the config, nothing missing, nothing left
// over but what this engine has no use for (vision, key and activation scales, rotary tables).
// Errors: one fault list of all of it; kUnsupported for a quantisation that is not read.
Result<LoadPlan> plan_load(const Checkpoint& checkpoint, const ModelConfig& config, MtpUse mtp,
                           ModelWeights& weights, Findings& findings);

}  // namespace pewter
