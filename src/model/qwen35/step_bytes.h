// What a step needs: the bytes it must move and the operations it must do, from shapes, formats,
// rows and context alone. Never what kernels happen to load, so a kernel that reads less than it
// should, or more, does not move the yardstick. Weights count once a step however many rows use
// them; zero points of symmetric int4 count nothing (4.125 bits a weight, footprint.h).
#pragma once

#include "model/qwen35/footprint.h"

namespace pewter {

struct DecodeStep {
  int64_t sequences = 1;
  int64_t rows = 1;  // of all sequences together
  // Different experts a layer's rows chose, mean over layers; 0: the experts of one token. Uniform
  // routing of m rows: uniform_experts.
  double distinct_experts = 0;
  double context = 0;  // committed positions of a sequence, mean
};

struct StepBytes {
  double weights = 0;  // all but routed experts
  double experts = 0;  // routed
  double state = 0;    // recurrent state and convolution window of every sequence, in and out
  double kv = 0;       // keys and values: the context read once a sequence, the new rows written
  double total() const { return weights + experts + state + kv; }
};

StepBytes decode_bytes(const ModelConfig& config, const Footprint& footprint,
                       const DecodeStep& step);

// experts · (1 − (1 − top_k / experts)^rows); 0 for a dense model.
double uniform_experts(const ModelConfig& config, int64_t rows);

// Operations of a prompt of `tokens` that follows `context` positions, a multiply-add being two:
//   2 · tokens · (parameters of every matrix a token uses, without embedding and head)
//   + 2 · logits_rows · parameters of the head
//   + Σ over tokens of 4 · query_heads · head_dim · (positions it sees) in each attention layer
//   + tokens · 6 · value_heads · key_dim · value_dim in each delta layer
//     (Sᵀk, the rank-one update and Sᵀq, two operations an element of S each)
// Norms, gates, the convolution and the softmax are left out: under a percent.
struct PrefillStep {
  int64_t tokens = 0, context = 0, logits_rows = 1;
};
double prefill_flops(const ModelConfig& config, const PrefillStep& step);

}  // namespace pewter
