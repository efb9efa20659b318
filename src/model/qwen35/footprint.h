// What a model costs in bytes: on disk, on the device, and read per decoded token, by component.
// Counted from shapes and formats alone, so it may be asked of a model that is not loaded.
#pragma once

#include <array>
#include <functional>

#include "model/qwen35/load_plan.h"

namespace pewter {

struct ComponentBytes {
  std::string_view name;
  std::string formats;  // "int4_group128", or several with " + "
  int64_t parameters = 0;
  int64_t disk_bytes = 0;  // of the tensors, with the zero points of symmetric int4
  int64_t stored_bytes =
      0;  // what the model needs: weight_bytes of its matrices, f32 of its vectors
  int64_t token_bytes = 0;  // read for one decoded token of one sequence
};

struct Footprint {
  std::vector<ComponentBytes> components;  // those the model has, in Component order
  ComponentBytes total;                    // without the drafting layer, which is in `components`
  // Of one sequence, whatever its length.
  int64_t recurrent_bytes = 0;    // the delta rule's state, f32
  int64_t convolution_bytes = 0;  // three past rows of every delta layer, activation type
  // Of one token of a sequence, model layers and the drafting layer.
  int64_t kv_token_bytes = 0;
  int64_t mtp_kv_token_bytes = 0;
};

struct StateTypes {
  DType activations = DType::kBF16;
  DType kv = DType::kBF16;
};

// Counts a plan's parameters with what its files hold.
Footprint footprint(const ModelConfig& config, const LoadPlan& plan, const StateTypes& types = {});

// Formats of a model that exists as a config only; n, k and count are filled in by spec_of.
using FormatChoice = std::function<WeightSpec(const MatrixParameter&)>;
WeightSpec spec_of(const MatrixParameter& p, const FormatChoice& format);
// list_parameters, and last a tied head where the format makes it a matrix of its own: int8_row.
Parameters list_parameters(const ModelConfig& config, const FormatChoice& format, bool with_mtp,
                           ModelWeights& weights);

// Counts such a model. Vectors and int8_row matrices are taken as BF16 on disk. Disk bytes of int4
// are without g_idx.
Footprint footprint(const ModelConfig& config, bool with_mtp, const FormatChoice& format,
                    const StateTypes& types = {});

}  // namespace pewter
