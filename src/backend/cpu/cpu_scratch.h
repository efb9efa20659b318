// The scratch of CpuOps: arrays laid out once by reserve(), so that no op allocates. The stages of
// a step run one after another, so those that never overlap share memory.
#pragma once

#include <vector>

#include "backend/cpu/arena.h"
#include "backend/cpu/attention.h"
#include "backend/cpu/delta.h"
#include "backend/cpu/linear.h"
#include "backend/ops.h"

namespace pewter {

// Rows a stage takes at a time: longer prefills go through in blocks.
inline constexpr int64_t kRowBlock = 512;
// Output columns one item of experts_down_add computes for every expert.
inline constexpr int64_t kDownColumns = 64;

struct CpuScratch {
  // Input rows, and the pointers kernels follow to them. A pair is a row's expert slot.
  InputMemory inputs;
  std::byte** out_rows = nullptr;
  float** residual_rows = nullptr;
  float* router_logits = nullptr;  // [kRowBlock, experts + 1]
  // Rows grouped by expert: pairs (row, slot) in expert order.
  int32_t* expert_begin = nullptr;  // [experts + 1]
  int32_t* pairs = nullptr;         // [kRowBlock · top_k] pair at each place
  int32_t* place = nullptr;         // [kRowBlock · top_k] place of each pair
  LinearJob* jobs = nullptr;        // [experts + 1]

  struct PerWorker {
    float* down = nullptr;  // [kRowBlock · (top_k + 1), kDownColumns]
    float* row = nullptr;   // [widest row, padded]
  };
  // One of each for every worker.
  std::vector<LinearScratch> linear;
  std::vector<DeltaScratch> delta;
  std::vector<AttentionScratch> attention;
  std::vector<PerWorker> workers;
  AttentionShared attention_shared;

  // Lays everything out; with an arena without memory this only measures. Allocates the vectors on
  // the first call.
  void lay_out(Arena& arena, const OpsLimits& limits, int64_t worker_count);
};

}  // namespace pewter
