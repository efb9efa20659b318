// What a draft of a DFlash drafter needs (model/qwen35/draft_bytes.h).
#pragma once

#include "model/dflash/model.h"
#include "model/qwen35/draft_bytes.h"

namespace pewter {

// Its weights and the head once, however many guesses; keys and values of the context, in sliding
// layers of their window, and those of new rows. `kv_bytes`: of an element of the cache.
double dflash_draft_bytes(const DflashModel& model, const DraftEnds& ends, int64_t kv_bytes,
                          const DraftStep& step);

}  // namespace pewter
