// What one op must move, in bytes: its weights and vectors, the recurrent state it takes in and
// gives back, keys and values. Activations between ops are left out: they are small and stay in a
// cache. Counted from shapes and formats alone, so a kernel that reads less than it should, or
// more, does not move the yardstick. Over a decode step's ops they add up to decode_bytes
// (model/qwen35/step_bytes.h).
#pragma once

#include "backend/ops.h"

namespace pewter {

// What the arguments of an op do not say on the host.
struct OpLoad {
  double distinct_experts = 0;  // different experts the rows chose
  double context = 0;           // committed positions of a sequence, mean
};

double op_bytes(const EmbedArgs& args, const OpLoad& load);
double op_bytes(const NormLinearArgs& args, const OpLoad& load);
double op_bytes(const LinearAddArgs& args, const OpLoad& load);
double op_bytes(const DeltaMixArgs& args, const OpLoad& load);
double op_bytes(const AttentionPrepareArgs& args, const OpLoad& load);
double op_bytes(const AttentionArgs& args, const OpLoad& load);
double op_bytes(const RouteArgs& args, const OpLoad& load);
double op_bytes(const ExpertsUpArgs& args, const OpLoad& load);
double op_bytes(const ExpertsDownAddArgs& args, const OpLoad& load);
double op_bytes(const MlpUpArgs& args, const OpLoad& load);
double op_bytes(const FinalNormArgs& args, const OpLoad& load);
double op_bytes(const LogitsArgs& args, const OpLoad& load);
double op_bytes(const SampleArgs& args, const OpLoad& load);  // 0: logits are an activation

}  // namespace pewter
