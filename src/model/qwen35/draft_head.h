// A draft head of a checkpoint: the rows of some tokens, copied out of the output head (the
// embedding of tied models) and stored in int8_row whatever they were. What a guess reads of a
// vocabulary of hundreds of thousands becomes a tenth; a token that is not listed is never guessed,
// and said all the same.
#pragma once

#include "backend/device.h"
#include "checkpoint/checkpoint.h"
#include "model/qwen35/weights.h"

namespace pewter {

// Bytes it takes on a device.
int64_t draft_head_bytes(const ModelConfig& config, const Device& device, int64_t rows);

// ids: ascending, each once, of the vocabulary; CHECKed. Errors: kResourceExhausted; data faults
// name file and tensor.
Result<DraftHead> load_draft_head(const Checkpoint& checkpoint, const ModelConfig& config,
                                  Device& device, std::vector<int32_t> ids);

}  // namespace pewter
