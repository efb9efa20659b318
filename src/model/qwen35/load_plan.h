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

// The output head's format on the device.
enum class LmHead : uint8_t {
  kAsStored,
  kInt8,  // int8_row, made of a head the file has as floats; a quantised one stays as it is
};

struct MatrixPlan {
  MatrixParameter parameter;
  WeightSpec spec;                    // of the whole stack, as the device gets it
  std::vector<LinearSource> sources;  // parameter.count of them
  // A tied embedding whose rows also become the head, in int8_row; null otherwise.
  WeightMatrix* int8_head = nullptr;

  WeightSpec int8_head_spec() const {
    return {.format = WeightFormat::kInt8Row, .n = spec.n, .k = spec.k};
  }
  // What a device takes for it.
  template <typename Bytes>
  int64_t stored_bytes(const Bytes& bytes_of) const {
    return bytes_of(spec) + (int8_head == nullptr ? 0 : bytes_of(int8_head_spec()));
  }
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
                           ModelWeights& weights, Findings& findings,
                           LmHead head = LmHead::kAsStored);

}  // namespace pewter
