// Models without files, for benches: configurations by name, and which matrix is in which format
// as checkpoints of that kind are published.
#pragma once

#include "model/qwen35/footprint.h"

namespace pewter {

// third: a third of the 122B in width and depth; the others as published.
// Error: kInvalidArgument for an unknown name, naming the known ones.
Result<ModelConfig> shape_config(std::string_view name);

// bf16: everything. fp8, int4: every matrix but those that checkpoints leave alone: embedding,
// head, router, the shared expert's gate, the delta rule's two gates, mtp.fc. hybrid: int4 with the
// shared experts in fp8. Scales are 16 bits wide. Error: kInvalidArgument, naming the known ones.
struct ShapeFormats {
  std::string head = "bf16";  // format of the head alone: bf16, int8, fp8 or int4
  std::string mtp = "bf16";   // of the drafting layer alone: one of kDraftFormats
};
inline constexpr std::string_view kDraftFormats = "bf16, fp8, int4";
Result<FormatChoice> shape_formats(std::string_view name, const ShapeFormats& formats = {});

// The format of a name; `known`: the names that may stand there, by commas. Error: kInvalidArgument
// with `what` it is and those names.
Result<WeightSpec> weight_spec_named(std::string_view what, std::string_view name,
                                     std::string_view known);

}  // namespace pewter
