// fp8 panels times f32 rows by multiply-adds.
//
// Split of work: the tiles of panel_tiles_inl.h, a panel at a time. Bytes: the panels once (again
// from cache for every tile of rows), 4 bytes of a row for each product of a panel. An E4M3 code
// shifted into half-float position is its value / 2⁸, subnormals included; 2⁸ joins the scale, and
// both steps are exact. (The NaN codes 0x7F and 0xFF read as ±480.) Precision: the products of 128
// inputs are summed unscaled, then scaled into the sum; f32. Limits: decoding for few rows,
// multiply-adds for many.

#include "backend/cpu/panel_rows.h"
#include "backend/cpu/simd.h"
#include "tensor/formats/fp8_block128.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "backend/cpu/panel_fp8.cc"
#include <hwy/foreach_target.h>
//
#include "backend/cpu/panel_tiles_inl.h"

HWY_BEFORE_NAMESPACE();
namespace pewter {
namespace HWY_NAMESPACE {

HWY_INLINE V decode_e4m3(const std::byte* at) {
  const hn::Rebind<int16_t, D> d16;
  const hn::Rebind<hwy::float16_t, D> half;
  const auto wide =
      hn::PromoteTo(d16, hn::LoadU(hn::Rebind<int8_t, D>(), reinterpret_cast<const int8_t*>(at)));
  const auto bits = hn::And(hn::ShiftLeft<7>(wide), hn::Set(d16, static_cast<int16_t>(0xBFFF)));
  return hn::PromoteTo(D(), hn::BitCast(half, bits));
}

template <int kRows, int kPanels>
HWY_NOINLINE void fp8_tile(const Panels& w, int64_t panel, const float* const* x, float* out,
                           int64_t stride) {
  HWY_ALIGN float sums[kRows][kPanels * kPanelOutputs] = {};
  const float* rows[kRows];
  for (int r = 0; r < kRows; ++r) rows[r] = x[r];
  const std::byte* values = w.values + panel * w.value_stride;
  for (int64_t block = 0; block < w.k; block += kFp8Block) {
    V acc[kRows][kPanels][kVectors];
    unroll<kRows>([&](auto r) PEWTER_INLINE_LAMBDA {
      unroll<kPanels>([&](auto p) PEWTER_INLINE_LAMBDA {
        unroll<kVectors>([&](auto v) PEWTER_INLINE_LAMBDA { acc[r][p][v] = hn::Zero(D()); });
      });
    });
    const int64_t end = HWY_MIN(block + kFp8Block, w.k);
    for (int64_t i = block; i < end; ++i, values += kPanelOutputs) {
      V weights[kPanels][kVectors];
      unroll<kPanels>([&](auto p) PEWTER_INLINE_LAMBDA {
        const std::byte* at = values + p * w.value_stride;
        if constexpr (kRows <= 4) __builtin_prefetch(at + kAhead);
        unroll<kVectors>(
            [&](auto v) PEWTER_INLINE_LAMBDA { weights[p][v] = decode_e4m3(at + v * kLanes); });
      });
      unroll<kRows>([&](auto r) PEWTER_INLINE_LAMBDA {
        const V a = hn::Set(D(), rows[r][i]);
        unroll<kPanels>([&](auto p) PEWTER_INLINE_LAMBDA {
          unroll<kVectors>([&](auto v) PEWTER_INLINE_LAMBDA {
            acc[r][p][v] = hn::MulAdd(weights[p][v], a, acc[r][p][v]);
          });
        });
      });
    }
    unroll<kPanels>([&](auto p) PEWTER_INLINE_LAMBDA {
      // A panel lies within one row of blocks.
      const int64_t row = (w.first + panel + p) * kPanelOutputs / kFp8Block;
      const V scale = hn::Set(D(), 256.0f * load_float(w.scales + row * w.scale_stride,
                                                       w.scale_dtype, block / kFp8Block));
      unroll<kRows>([&](auto r) PEWTER_INLINE_LAMBDA {
        unroll<kVectors>([&](auto v) PEWTER_INLINE_LAMBDA {
          float* sum = sums[r] + p * kPanelOutputs + v * kLanes;
          hn::Store(hn::MulAdd(acc[r][p][v], scale, hn::Load(D(), sum)), D(), sum);
        });
      });
    });
  }
  for (int r = 0; r < kRows; ++r)
    for (int i = 0; i < kPanels * kPanelOutputs; i += static_cast<int>(kLanes))
      hn::StoreU(hn::Load(D(), sums[r] + i), D(), out + r * stride + i);
}

void panel_rows_fp8(const PanelArgs& args) {
  const Panels& w = args.w;
  for_tiles<kTileRows, 1, kTileWide>(args, [&](auto rows, auto panels, int64_t r, int64_t p) {
    fp8_tile<decltype(rows)::value, decltype(panels)::value>(
        w, p, args.floats + r, args.out + r * args.out_stride + p * kPanelOutputs, args.out_stride);
  });
}

}  // namespace HWY_NAMESPACE
}  // namespace pewter
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace pewter {

HWY_EXPORT(panel_rows_fp8);
void panel_rows_fp8(const PanelArgs& args) { HWY_DYNAMIC_DISPATCH(panel_rows_fp8)(args); }

}  // namespace pewter
#endif
