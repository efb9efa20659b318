// bf16 panels times f32 rows by multiply-adds.
//
// Split of work: the tiles of panel_tiles_inl.h. Bytes: the panels once (again from cache for every
// tile of rows), 4 bytes of a row for each product of a panel. A word of the panel is two inputs of
// one output; a shift and a mask make them f32. Precision: weights and products exact, one rounding
// per addition. Limits: memory for one row, multiply-adds from about 8 rows on. Measured with
// AVX-512, 512 rows × 1,024 inputs on two cores: 242 of 324 GFLOP/s (75 %); one row at the read
// bandwidth.

#include "backend/cpu/panel_rows.h"
#include "backend/cpu/simd.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "backend/cpu/panel_bf16.cc"
#include <hwy/foreach_target.h>
//
#include "backend/cpu/panel_tiles_inl.h"

HWY_BEFORE_NAMESPACE();
namespace pewter {
namespace HWY_NAMESPACE {

template <int kRows, int kPanels>
HWY_NOINLINE void bf16_tile(const Panels& w, int64_t panel, const float* const* x, float* out,
                            int64_t stride) {
  V acc[kRows][kPanels][kVectors];
  unroll<kRows>([&](auto r) PEWTER_INLINE_LAMBDA {
    unroll<kPanels>([&](auto p) PEWTER_INLINE_LAMBDA {
      unroll<kVectors>([&](auto v) PEWTER_INLINE_LAMBDA { acc[r][p][v] = hn::Zero(D()); });
    });
  });
  const float* rows[kRows];
  for (int r = 0; r < kRows; ++r) rows[r] = x[r];
  const std::byte* values = w.values + panel * w.value_stride;
  // The input beyond an odd k is a zero of both.
  for (int64_t i = 0; i < w.k; i += 2, values += 4 * kPanelOutputs) {
    V even[kPanels][kVectors], odd[kPanels][kVectors];
    unroll<kPanels>([&](auto p) PEWTER_INLINE_LAMBDA {
      const std::byte* at = values + p * w.value_stride;
      if constexpr (kRows <= 4) __builtin_prefetch(at + kAhead);
      unroll<kVectors>([&](auto v) PEWTER_INLINE_LAMBDA {
        const auto both = hn::LoadU(D32(), reinterpret_cast<const uint32_t*>(at) + v * int{kLanes});
        even[p][v] = hn::BitCast(D(), hn::ShiftLeft<16>(both));
        odd[p][v] = hn::BitCast(D(), hn::And(both, hn::Set(D32(), 0xFFFF0000u)));
      });
    });
    unroll<kRows>([&](auto r) PEWTER_INLINE_LAMBDA {
      const V a = hn::Set(D(), rows[r][i]), b = hn::Set(D(), rows[r][i + 1]);
      unroll<kPanels>([&](auto p) PEWTER_INLINE_LAMBDA {
        unroll<kVectors>([&](auto v) PEWTER_INLINE_LAMBDA {
          acc[r][p][v] = hn::MulAdd(even[p][v], a, acc[r][p][v]);
        });
      });
      unroll<kPanels>([&](auto p) PEWTER_INLINE_LAMBDA {
        unroll<kVectors>([&](auto v) PEWTER_INLINE_LAMBDA {
          acc[r][p][v] = hn::MulAdd(odd[p][v], b, acc[r][p][v]);
        });
      });
    });
  }
  unroll<kRows>([&](auto r) PEWTER_INLINE_LAMBDA {
    unroll<kPanels>([&](auto p) PEWTER_INLINE_LAMBDA {
      unroll<kVectors>([&](auto v) PEWTER_INLINE_LAMBDA {
        hn::StoreU(acc[r][p][v], D(), out + r * stride + p * kPanelOutputs + v * kLanes);
      });
    });
  });
}

void panel_rows_bf16(const PanelArgs& args) {
  const Panels& w = args.w;
  for_tiles<kTileRows, kTilePair, kTileWide>(args, [&](auto rows, auto panels, int64_t r,
                                                       int64_t p) {
    bf16_tile<decltype(rows)::value, decltype(panels)::value>(
        w, p, args.floats + r, args.out + r * args.out_stride + p * kPanelOutputs, args.out_stride);
  });
}

}  // namespace HWY_NAMESPACE
}  // namespace pewter
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace pewter {

HWY_EXPORT(panel_rows_bf16);
void panel_rows_bf16(const PanelArgs& args) { HWY_DYNAMIC_DISPATCH(panel_rows_bf16)(args); }

}  // namespace pewter
#endif
