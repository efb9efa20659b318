// Random weights for benches, made by the device, the CPU in a second or two a gigabyte: sane
// enough that logits are finite and routing is spread evenly, of a quality nobody asks for.
#pragma once

#include <functional>

#include "backend/device.h"
#include "model/qwen35/footprint.h"

namespace pewter {

struct RandomWeightOptions {
  uint64_t seed = 1;
  int threads = 0;  // 0: all this process may use
  // Layers made anew; the others are these again, each of its own kind (weights alone: state and
  // keys are every layer's own). 0: all.
  int64_t unique_layers = 0;
  bool with_mtp = false;        // the drafting layer too
  int64_t draft_head_rows = 0;  // of a head for drafts alone, in int8_row; 0: none
  // From any thread, one at a time.
  std::function<void(int64_t bytes_done, int64_t bytes_total)> progress;
};

// Matrices of random signs and sizes whose outputs have unit variance for inputs of unit variance;
// int4 codes and fp8 values cover their whole range, int4 scales are signed. Errors:
// kInvalidArgument when the unique layers lack a kind; those of the device.
Result<ModelWeights> make_random_weights(Device& device, const ModelConfig& config,
                                         const FormatChoice& format,
                                         const RandomWeightOptions& options = {});

// Bytes they take on the device.
struct RandomWeightBytes {
  int64_t layers = 0, others = 0;  // others: embedding, head, last norm
  int64_t total() const { return layers + others; }
};
RandomWeightBytes random_weight_bytes(const Device& device, const ModelConfig& config,
                                      const FormatChoice& format,
                                      const RandomWeightOptions& options);

// The config cut to its first layers; 0: all of them.
ModelConfig first_layers(const ModelConfig& config, int64_t layers);

}  // namespace pewter
