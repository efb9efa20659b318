// What drafting needs, beside what a step does (step_bytes.h): the bytes a drafter must move for
// one draft of every sequence, from shapes, formats, rows and context alone.
#pragma once

#include "model/qwen35/footprint.h"

namespace pewter {

struct DraftStep {
  int64_t sequences = 1;
  int64_t drafts = 1;         // guesses for each
  double committed_rows = 1;  // of each sequence's last step: what the drafter reads first
  double context = 0;         // committed positions of a sequence, mean
};

// Of the target's ends, which drafters share.
struct DraftEnds {
  double head = 0;           // the head that guesses are chosen with, whole
  double embedding_row = 0;  // one token's
};
// `draft_head_rows` rows in int8_row, or with 0 the target's head.
DraftEnds draft_ends(const ModelConfig& config, const Footprint& footprint,
                     int64_t draft_head_rows);

// The MTP layer: its weights once a guess, with the experts of the sequences' rows (independent of
// each other); keys and values of the context once a guess, those of new rows written. Committed
// rows before the last need keys and values alone, whose matrices the first guess reads anyway.
// `footprint` counts the layer.
double mtp_draft_bytes(const ModelConfig& config, const Footprint& footprint, const DraftEnds& ends,
                       const DraftStep& step);

}  // namespace pewter
