// Random tiny models made directly on a device, without a checkpoint: every weight a pure function
// of the seed, in formats chosen per component. Sizes are odd on purpose: head counts that divide
// unevenly into vectors, widths below and above a register, rotary dimensions that cover a part of
// a head.
#pragma once

#include "model/qwen35/model.h"

namespace pewter::test {

// Formats of a random model's matrices. Embedding, router and the small gates are always bf16, as
// in every published checkpoint.
struct RandomFormats {
  WeightFormat mixer = WeightFormat::kBF16;    // projections of delta and attention layers
  WeightFormat experts = WeightFormat::kBF16;  // routed experts, or the dense MLP
  WeightFormat shared = WeightFormat::kBF16;   // the shared expert
  WeightFormat head = WeightFormat::kBF16;
  DType scale_dtype = DType::kF32;  // of int4 and fp8 matrices
  bool zeros = false;               // int4 with zero points of its own
};

// Four layers, three delta and one attention, and an MTP layer.
ModelConfig tiny_moe_config();    // hidden 64, odd head sizes: for formats without a group in k
ModelConfig tiny_dense_config();  // hidden 96, a dense MLP, one key head for all value heads
// As the two above with every k a multiple of 128, as int4 needs.
ModelConfig grouped_moe_config();
ModelConfig grouped_dense_config();

// Errors: those of the device.
Result<Qwen35Model> make_random_model(Device& device, const ModelConfig& config,
                                      const RandomFormats& formats, uint64_t seed);

// Token ids of a text nobody wrote: uniform below the vocabulary, a pure function of the seed.
std::vector<int32_t> random_tokens(const ModelConfig& config, int64_t count, uint64_t seed);

}  // namespace pewter::test
