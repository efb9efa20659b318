// SequenceState: one sequence's claim on the pool: its pages, its slot, how much is committed. Made
// and released by ModelRunner; moved, never copied.
#pragma once

#include <cstdint>
#include <vector>

namespace pewter {

struct SequenceState {
  std::vector<int32_t> pages;  // physical pages, in logical order
  int32_t slot = -1;
  int64_t length = 0;          // committed positions
  int32_t pending = 0;         // of them, rows still on the slot's tape and not yet in its state
  int32_t offered = 0;         // rows of the last decode step that accept() may still commit
  int32_t position_delta = 0;  // added to positions for RoPE (images move it)
};

}  // namespace pewter
