#include "backend/cpu/cpu_scratch.h"

namespace pewter {
namespace {

LinearScratch lay_out_linear(Arena& arena, const OpsLimits& limits) {
  const int64_t widest = std::max(limits.widest_input, limits.expert_width);
  LinearScratch s;
  s.dot.tile = arena.take<float>(DotScratch::kTileRows * DotScratch::kTileInputs);
  s.dot.partials =
      arena.take<float>(DotScratch::kInputRows * DotScratch::kTileRows * DotScratch::kMaxLanes);
  s.dot.scales = arena.take<float>(DotScratch::kTileRows * (widest / 128 + 1));
  s.results = arena.take<float>(2 * DotScratch::kInputRows * kItemOutputs);
  return s;
}

}  // namespace

void CpuScratch::lay_out(Arena& arena, const OpsLimits& limits, int64_t worker_count) {
  const auto count = static_cast<size_t>(worker_count);
  linear.resize(count);
  delta.resize(count);
  attention.resize(count);
  workers.resize(count);

  // A block of rows for a projection, or its expert pairs for experts_down_add.
  const int64_t block = std::min(std::max(limits.rows, limits.logits_rows), kRowBlock);
  const int64_t pairs_count = block * (limits.top_k + 1);
  input_floats = std::max(block * padded_inputs(limits.widest_input),
                          block * (limits.top_k * padded_inputs(limits.expert_width) +
                                   padded_inputs(limits.shared_width)));
  natural_rows = arena.take<const float*>(pairs_count);
  split_rows = arena.take<const float*>(pairs_count);
  out_rows = arena.take<std::byte*>(pairs_count);
  residual_rows = arena.take<float*>(block);
  expert_begin = arena.take<int32_t>(limits.experts + 1);
  pairs = arena.take<int32_t>(pairs_count);
  place = arena.take<int32_t>(pairs_count);
  jobs = arena.take<LinearJob>(limits.experts + 1);
  router_logits = arena.take<float>(block * (limits.experts + 1));
  for (LinearScratch& s : linear) s = lay_out_linear(arena, limits);

  // Projections and experts; then, in the same memory, the mixers.
  const int64_t shared = arena.used();
  natural = arena.take<float>(input_floats);
  split = arena.take<float>(input_floats);
  for (PerWorker& s : workers) {
    s.row = arena.take<float>(std::max(limits.widest_input, padded_inputs(limits.widest_input)));
    s.down = arena.take<float>(pairs_count * kDownColumns);
  }
  arena.rewind(shared);
  for (size_t i = 0; i < count; ++i) delta[i] = DeltaScratch::lay_out(arena, limits, linear[i].dot);
  arena.rewind(shared);
  for (size_t i = 0; i < count; ++i) lay_out_attention(arena, limits, attention[i], linear[i].dot);
  lay_out_attention_shared(arena, limits, worker_count, attention_shared);
}

}  // namespace pewter
