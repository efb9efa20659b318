// OverlappedTokens: tokens of random weights that route as text does. Neighbours in real text share
// experts, by published measurements D(m) = 8·m^0.74 distinct ones for m rows of one sequence and 8
// of 256 a token, where independent ones have 256·(1 − (1 − 8/256)^m). Here the tokens of a step
// share a part of their embedding, and with it of their residual; how large a part is found by
// counting what the router really chooses.
#pragma once

#include <functional>
#include <span>

#include "backend/device.h"
#include "base/rng.h"
#include "model/model_config.h"

namespace pewter {

// top_k · rows^0.74.
double overlapped_experts(const ModelConfig& config, int64_t rows);

class OverlappedTokens {
 public:
  // The first tokens' embeddings are made anew, in bf16. All outlive it. Error: kInvalidArgument
  // when the table is of another format or too small.
  static Result<OverlappedTokens> make(Device& device, WeightMatrix& embed);

  // Finds the part of their embeddings that the tokens of a step share. `distinct` runs some steps
  // and counts the experts of a layer that they chose, mean. Error: kInternal when no part gives
  // `wanted` within 2 percent.
  Status tune(double wanted, const std::function<double()>& distinct);
  // Tokens of one step, at most kMaxDecodeRows.
  void pick(Rng& rng, std::span<int32_t> tokens) const;

 private:
  OverlappedTokens(Device& device, WeightMatrix& embed) : device_(&device), embed_(&embed) {}
  // part² of a token's variance is what it shares.
  Status store(float part);

  Device* device_;
  WeightMatrix* embed_;
};

}  // namespace pewter
