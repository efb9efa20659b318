// Tile sizes of the portable kernels, by target: sums of the tile and the weights of one step fill
// the registers (32 of AVX-512 and NEON, 16 of AVX2; emulated lanes have none).
#if defined(PEWTER_PANEL_TILES_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef PEWTER_PANEL_TILES_INL_H
#undef PEWTER_PANEL_TILES_INL_H
#else
#define PEWTER_PANEL_TILES_INL_H
#endif

#include "backend/cpu/panel_tiles.h"
#include "backend/cpu/simd_inl.h"

HWY_BEFORE_NAMESPACE();
namespace pewter {
namespace HWY_NAMESPACE {

inline constexpr int kVectors = static_cast<int>(kPanelOutputs / kLanes);  // of a panel
inline constexpr int kTileRows = kLanes == 16 ? 12 : HWY_TARGET == HWY_EMU128 ? 1 : 4;
inline constexpr int kTilePair = kLanes == 16 ? 2 : 1;
inline constexpr int kTileWide = kLanes == 16 ? 4 : HWY_TARGET == HWY_EMU128 ? 1 : 2;

// Bytes ahead of a stream that a few rows ask for: memory's latency at a core's bandwidth.
inline constexpr int64_t kAhead = 2048;

using D32 = hn::Rebind<uint32_t, D>;

}  // namespace HWY_NAMESPACE
}  // namespace pewter
HWY_AFTER_NAMESPACE();

#endif
