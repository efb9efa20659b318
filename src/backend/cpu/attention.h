// Causal attention of the fast path. The rows of one sequence are cut into tiles of at most
// kRowTile; a tile and one KV head are a *strip*: all query heads that share the KV head,
// over all positions the tile may see. The context is cut at fixed positions into splits; each
// gives a partial softmax, and partials merge in order of position. So neither the number of
// threads nor the other rows change a bit.
#pragma once

#include <vector>

#include "backend/cpu/arena.h"
#include "backend/cpu/dot.h"
#include "backend/cpu/workers.h"
#include "backend/ops.h"

namespace pewter {

inline constexpr int64_t kSplitTokens = 256;
inline constexpr int64_t kRowTile = 16;
// Splits that are computed before their partials merge, at least: 4096 positions of two KV heads.
inline constexpr int64_t kSplitsInFlight = 32;
// Columns of sums and decoded values: whole tiles of four registers.
constexpr int64_t padded_head(int64_t head_dim) { return (head_dim + 63) / 64 * 64; }

// A softmax over some positions, unfinished: per query vector the largest score, the sum of
// exponentials relative to it, and the values weighted by them.
struct PartialSoftmax {
  float* largest = nullptr;  // [vectors]
  float* total = nullptr;    // [vectors]
  float* sums = nullptr;     // [vectors, padded head_dim]
};

// Scratch of one worker. vectors = kRowTile · query heads per KV head.
struct AttentionScratch {
  float* q = nullptr;              // [vectors, padded head_dim], when floats are what is multiplied
  const float** q_rows = nullptr;  // [vectors]
  const BFloat16** q_halves = nullptr;  // [vectors], into the queries themselves
  BFloat16* key = nullptr;              // [head_dim] of one position
  float* scores = nullptr;              // [vectors, kSplitTokens]
  float* values = nullptr;              // [kPageTokens, padded head_dim] a page's values as floats
  float* angles = nullptr;              // [2, head_dim] cosines and sines; one head at `q`
  PartialSoftmax partial, running;
};

// Shared by the workers when a few long contexts are cut between them.
struct AttentionShared {
  struct Tile {
    int32_t sequence, first_row, rows;
  };
  Tile* tiles = nullptr;  // [rows]
  // One per split in flight, and one per strip that is merged over several waves.
  std::vector<PartialSoftmax> partials, running;

  int64_t in_flight() const { return static_cast<int64_t>(partials.size()); }
};

void lay_out_attention(Arena& arena, const OpsLimits& limits, AttentionScratch& scratch);
void lay_out_attention_shared(Arena& arena, const OpsLimits& limits, int64_t workers,
                              AttentionShared& shared);

void attention(Workers& workers, const AttentionArgs& args, const AttentionScratch* scratch,
               const AttentionShared& shared);

// One row of attention_prepare.
void attention_prepare_row(const AttentionPrepareArgs& args, int64_t row,
                           const AttentionScratch& scratch);

}  // namespace pewter
