#include "model/dflash/draft_bytes.h"

#include <algorithm>

namespace pewter {

double dflash_draft_bytes(const DflashModel& model, const DraftEnds& ends, int64_t kv_bytes,
                          const DraftStep& step) {
  const DflashConfig& config = model.config;
  const auto layers = static_cast<double>(config.layers);
  const double block = static_cast<double>(step.drafts) + 1;
  double seen = 0;  // positions, of all layers
  for (const DflashLayerKind& kind : config.layer_kinds)
    seen +=
        kind.window == 0 ? step.context : std::min(step.context, static_cast<double>(kind.window));
  const double positions = seen + layers * (step.committed_rows + block);
  return static_cast<double>(model.needed_bytes) + ends.head +
         static_cast<double>(step.sequences) *
             (block * ends.embedding_row +
              positions * static_cast<double>(2 * config.kv_width() * kv_bytes));
}

}  // namespace pewter
