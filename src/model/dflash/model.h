// DflashModel: the weights of a DFlash drafter on a device. It has no embedding and no head: those
// are the target's.
//
// How it fits the stages of backend/ops.h, which were made for the target:
//   norms       w - 1 is stored, since the stages multiply with 1 + w
//   gates       its attention has none: query rows are stored with rows of zeros where a gate's
//               would be, and attention is handed gates of 30, whose sigmoid is 1 in f32
//   fc          one matrix for each tapped layer, whose outputs add up in f32
#pragma once

#include <memory>

#include "backend/ops.h"
#include "model/dflash/config.h"

namespace pewter {

struct DflashLayer {
  TensorView input_norm, post_norm;  // [H] f32, less 1
  TensorView q_norm, k_norm;         // [D] f32, less 1
  WeightMatrix q;                    // [2·Nq·D, H]: each head's rows, then as many zeros
  WeightMatrix k, v;                 // [Nkv·D, H]
  WeightMatrix out;                  // [H, Nq·D]
  WeightMatrix gate, up, down;       // [I, H] twice, [H, I]
};

struct DflashModel {
  DflashConfig config;
  std::vector<WeightMatrix> fc;   // [H, H] for each tap
  TensorView hidden_norm, norm;   // [H] f32, less 1
  TensorView identity_norm;       // [H] f32: with kIdentityEpsilon, a norm that changes nothing
  TensorView inverse_frequency;   // [D / 2] f32
  const int32_t* axis = nullptr;  // [D / 2] zeros: positions of text
  std::vector<DflashLayer> layers;
  std::vector<Buffer> buffers;  // what the views point into
  int64_t bytes = 0;            // taken on the device
  int64_t needed_bytes = 0;     // of its weights as they are: without the rows of zeros, or padding

  // x / √(mean x² + 2⁶⁰) · 2³⁰ is x itself in f32 as long as |x| < 2¹⁸: how a residual stream
  // becomes activations.
  static constexpr float kIdentityEpsilon = 0x1p60f, kIdentityWeight = 0x1p30f;
  static constexpr float kOpenGate = 30;

  // Errors: everything that is wrong with the directory's config and tensors, with its name;
  // kResourceExhausted.
  static Result<std::shared_ptr<const DflashModel>> load(const std::string& directory,
                                                         Device& device);
  // What a drafter with every matrix in `format` takes.
  static int64_t stored_bytes(const DflashConfig& config, const Device& device,
                              const WeightSpec& format);

  static OpsLimits limits(const DflashConfig& config);

  // For those that make one: a vector of its own, and the tables that follow from the config.
  // Error: kResourceExhausted.
  Result<TensorView> add_floats(Device& device, const std::vector<float>& values);
  Status add_tables(Device& device);
  int64_t table_elements() const { return config.head_dim + config.hidden_size; }
};

// The drafter in a directory, before it is loaded.
struct DflashPlan {
  DflashConfig config;
  int64_t stored_bytes = 0;  // load will take on the device
};
// Errors as load's, as far as they show without reading weights.
Result<DflashPlan> plan_dflash(const std::string& directory, const Device& device);
// Its config alone.
Result<DflashConfig> read_dflash_config(const std::string& directory);

}  // namespace pewter
