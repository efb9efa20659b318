#include "backend/cpu/cpu_scratch.h"

namespace pewter {

void CpuScratch::lay_out(Arena& arena, const OpsLimits& limits, int64_t worker_count) {
  const auto count = static_cast<size_t>(worker_count);
  linear.resize(count);
  delta.resize(count);
  attention.resize(count);
  workers.resize(count);

  // A block of rows for a projection, or its expert pairs for experts_down_add.
  const int64_t block = std::min(std::max(limits.rows, limits.logits_rows), kRowBlock);
  const int64_t pairs_count = block * (limits.top_k + 1);
  inputs.lay_out(arena, pairs_count,
                 block * std::max(input_stride(limits.widest_input),
                                  limits.top_k * input_stride(limits.expert_width) +
                                      input_stride(limits.shared_width)));
  out_rows = arena.take<std::byte*>(pairs_count);
  residual_rows = arena.take<float*>(block);
  expert_begin = arena.take<int32_t>(limits.experts + 1);
  pairs = arena.take<int32_t>(pairs_count);
  place = arena.take<int32_t>(pairs_count);
  jobs = arena.take<LinearJob>(limits.experts + 1);
  router_logits = arena.take<float>(block * (limits.experts + 1));
  for (LinearScratch& s : linear) s.results = arena.take<float>(2 * kItemRows * kItemOutputs);

  // Projections and experts; then, in the same memory, the mixers.
  const int64_t shared = arena.used();
  inputs.lay_out_elements(arena);
  for (PerWorker& s : workers) {
    s.row = arena.take<float>(coded_inputs(std::max(limits.widest_input, limits.expert_width)));
    s.down = arena.take<float>(pairs_count * kDownColumns);
  }
  arena.rewind(shared);
  for (size_t i = 0; i < count; ++i) delta[i] = DeltaScratch::lay_out(arena, limits);
  arena.rewind(shared);
  for (size_t i = 0; i < count; ++i) lay_out_attention(arena, limits, attention[i]);
  lay_out_attention_shared(arena, limits, worker_count, attention_shared);
}

}  // namespace pewter
