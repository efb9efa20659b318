// The Gated DeltaNet mixer of the fast path: one key head of one sequence, with the value heads
// that share it, is one item. Heads never meet inside the mixer, so items share nothing: each owns
// its channels of window and tape and its heads of state and gates.
#pragma once

#include "backend/cpu/arena.h"
#include "backend/cpu/dot.h"
#include "backend/ops.h"

namespace pewter {

// Scratch of one worker. pk and pv are key_dim and value_dim padded to whole input units.
struct DeltaScratch {
  float* state = nullptr;            // [pk, pv] of one value head
  float* k = nullptr;                // [kDeltaChunk, pk] unit keys of one key head; kRows in decode
  float* q = nullptr;                // [kDeltaChunk, pk] unit queries / √dk
  float* v = nullptr;                // [kDeltaChunk, pv] values, then what the rows write
  float* o = nullptr;                // [kDeltaChunk, pv]
  float* predicted = nullptr;        // [pv] Sᵀk of a row
  float* products = nullptr;         // [2 · kDeltaChunk, kDeltaChunk] k·k and q·k of a chunk
  float* weights = nullptr;          // [kDeltaChunk, kDeltaChunk] products times decays
  float* scaled_k = nullptr;         // [kDeltaChunk, pk]
  const float** key_rows = nullptr;  // [2 · kDeltaChunk]

  static DeltaScratch lay_out(Arena& arena, const OpsLimits& limits);
};

// What one item works on. Rows of the tape come before the step's own.
struct DeltaItem {
  const DeltaMixArgs* args = nullptr;
  int64_t slot = 0, key_head = 0;
  int64_t accepted = 0;             // rows of the tape to apply
  int64_t first_row = 0, rows = 0;  // of the step; none for a fold
};

// Decode: applies the tape, commits only that, computes the new rows and writes their tape.
void delta_decode(const DeltaItem& item, const DeltaScratch& scratch);
// Prefill: applies the tape, then the chunked form, and commits both.
void delta_prefill(const DeltaItem& item, const DeltaScratch& scratch);

}  // namespace pewter
