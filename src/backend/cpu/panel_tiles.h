// How a kernel covers m rows × some panels with tiles whose sizes are known at compile time.
#pragma once

#include "backend/cpu/panel.h"
#include "backend/cpu/panel_rows.h"

namespace pewter {

template <int kValue>
struct Constant {
  static constexpr int value = kValue;
};

// Bytes of a panel below which one row takes panels one after another: streams side by side within
// a page hide each other from the processor's prefetcher.
inline constexpr int64_t kShortPanel = 4096;

// tile(rows, panels, first row, first panel) with sizes as Constants. Rows go kMostRows at a time,
// what is left in powers of two; panels in pairs, and kWide at a time when there is one row, where
// memory limits and wide tiles read long streams side by side. A pair of panels stays in the cache
// while all rows pass it.
template <int kMostRows, int kPair, int kWide, typename Tile>
void for_tiles(const PanelArgs& args, const Tile& tile) {
  const int64_t panels = args.count;
  int64_t p = 0;
  if (args.m == 1) {
    if (args.w.value_stride >= kShortPanel)
      for (; p + kWide <= panels; p += kWide) tile(Constant<1>(), Constant<kWide>(), 0, p);
    else
      for (; p < panels; ++p) tile(Constant<1>(), Constant<1>(), 0, p);
  }
  const auto rows_of = [&](auto width) {
    int64_t r = 0;
    for (; r + kMostRows <= args.m; r += kMostRows) tile(Constant<kMostRows>(), width, r, p);
    if constexpr (kMostRows > 8)
      if (args.m - r >= 8) tile(Constant<8>(), width, r, p), r += 8;
    if constexpr (kMostRows > 4)
      if (args.m - r >= 4) tile(Constant<4>(), width, r, p), r += 4;
    if constexpr (kMostRows > 2)
      if (args.m - r >= 2) tile(Constant<2>(), width, r, p), r += 2;
    if constexpr (kMostRows > 1)
      if (args.m - r >= 1) tile(Constant<1>(), width, r, p);
  };
  if constexpr (kPair > 1)
    for (; p + kPair <= panels; p += kPair) rows_of(Constant<kPair>());
  for (; p < panels; ++p) rows_of(Constant<1>());
}

}  // namespace pewter
