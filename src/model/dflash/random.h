// DFlash drafters without files, for benches: the known ones' shapes with random weights.
#pragma once

#include <string_view>

#include "model/dflash/model.h"

namespace pewter {

// The drafter of a shape (model/qwen35/shapes.h): of the 122B and the 35B as published
// (docs/speculation.md), of `third` one a third as wide and deep. Error: kInvalidArgument, naming
// the shapes that have one.
Result<DflashConfig> dflash_shape(std::string_view target);

// Every matrix in `format` (of shapes.h: bf16, fp8 or int4), with outputs of unit variance for
// inputs of unit variance. Errors: those of the device.
Result<std::shared_ptr<const DflashModel>> make_random_dflash(Device& device, DflashConfig config,
                                                              const WeightSpec& format,
                                                              uint64_t seed = 1);

}  // namespace pewter
