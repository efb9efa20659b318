// The Gated DeltaNet mixer of the fast path: one key head of one sequence, with the value heads
// that share it, is one item. Heads never meet inside the mixer, so items share nothing: each owns
// its channels of window and tape and its heads of state and gates.
#pragma once

#include "backend/cpu/arena.h"
#include "backend/cpu/dot.h"
#include "backend/ops.h"

namespace pewter {

// Floats between rows of values or of the state in scratch: an odd number of cache lines, because
// columns of rows a power of two apart would share a few sets of the cache.
constexpr int64_t delta_stride(int64_t value_dim) { return padded_inputs(value_dim) + 16; }

// Scratch of one worker. pk is key_dim padded to whole input units, sv delta_stride(value_dim).
struct DeltaScratch {
  float* state = nullptr;      // [pk, sv] of one value head
  float* k = nullptr;          // [kDeltaChunk, pk] unit keys of one key head; kRows in decode
  float* q = nullptr;          // [kDeltaChunk, pk] unit queries / √dk
  float* v = nullptr;          // [kDeltaChunk, sv] values, then what the rows write
  float* o = nullptr;          // [kDeltaChunk, sv]
  float* predicted = nullptr;  // [pv] Sᵀk of a row
  float* products = nullptr;   // [2 · kDeltaChunk, kDeltaChunk] k·k and q·k of a chunk
  float* weights = nullptr;    // [2, kDeltaChunk, kDeltaChunk] products times decays
  float* k_columns = nullptr;  // [pk, kDeltaChunk] the keys of a chunk, transposed
  float* scaled_k = nullptr;   // [pk, kDeltaChunk] those, decayed to the chunk's end

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
