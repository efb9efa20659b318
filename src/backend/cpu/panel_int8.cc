// int8 panels times rows of codes where the processor has no dot products of bytes: the same exact
// integers by other instructions, so that results have the bits of panel_avx512.cc's.
//
// Split of work: the tiles of panel_tiles_inl.h. Bytes: the panels once (again from cache for every
// tile of rows). Weights and codes are widened to 16 bits, even and odd bytes apart, because sums
// of two products of bytes would not fit. Precision: exact up to the f32 sum over groups; the
// output's scale comes last. Limits: multiplications; memory for one row with AVX2.

#include "backend/cpu/panel_rows.h"
#include "backend/cpu/simd.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "backend/cpu/panel_int8.cc"
#include <hwy/foreach_target.h>
//
#include "backend/cpu/panel_tiles_inl.h"

HWY_BEFORE_NAMESPACE();
namespace pewter {
namespace HWY_NAMESPACE {

using I = hn::Rebind<int32_t, D>;
using VI = hn::Vec<I>;

#if HWY_TARGET == HWY_AVX3 || HWY_TARGET == HWY_AVX2
// Four signed bytes a lane, as 16 bits: bytes 0 and 2, bytes 1 and 3.
using I16 = hn::Repartition<int16_t, I>;
struct Quads {
  hn::Vec<I16> even, odd;
};
HWY_INLINE Quads widen(VI bytes) {
  const auto pairs = hn::BitCast(I16(), bytes);
  return {hn::ShiftRight<8>(hn::ShiftLeft<8>(pairs)), hn::ShiftRight<8>(pairs)};
}
HWY_INLINE VI multiply_pairs(hn::Vec<I16> w, hn::Vec<I16> x) {
#if HWY_TARGET == HWY_AVX3
  return VI{_mm512_madd_epi16(w.raw, x.raw)};
#else
  return VI{_mm256_madd_epi16(w.raw, x.raw)};
#endif
}
// sum + Σ of the four products of each lane.
HWY_INLINE VI add_products(VI sum, const Quads& w, const Quads& x) {
  return hn::Add(hn::Add(sum, multiply_pairs(w.even, x.even)), multiply_pairs(w.odd, x.odd));
}
#else
using Quads = VI;
HWY_INLINE Quads widen(VI bytes) { return bytes; }
HWY_INLINE VI add_products(VI sum, VI w, VI x) {
  const auto byte_of = [](VI word, auto i) PEWTER_INLINE_LAMBDA {
    return hn::ShiftRight<24>(hn::ShiftLeft<24 - 8 * i>(word));
  };
  unroll<4>([&](auto i) PEWTER_INLINE_LAMBDA {
    sum = hn::Add(sum, hn::Mul(byte_of(w, i), byte_of(x, i)));
  });
  return sum;
}
#endif

template <int kRows, int kPanels>
HWY_NOINLINE void int8_tile(const Panels& w, int64_t panel, const int8_t* const* x, float* out,
                            int64_t stride) {
  const I di;
  HWY_ALIGN float sums[kRows][kPanels * kPanelOutputs] = {};
  const std::byte* values = w.values + panel * w.value_stride;
  for (int64_t g = 0; g < code_groups(w.k); ++g) {
    VI acc[kRows][kPanels][kVectors];
    unroll<kRows>([&](auto r) PEWTER_INLINE_LAMBDA {
      unroll<kPanels>([&](auto p) PEWTER_INLINE_LAMBDA {
        unroll<kVectors>([&](auto v) PEWTER_INLINE_LAMBDA { acc[r][p][v] = hn::Zero(di); });
      });
    });
    for (int64_t j = 0; j < 128; j += 4, values += 4 * kPanelOutputs) {
      Quads weights[kPanels][kVectors];
      unroll<kPanels>([&](auto p) PEWTER_INLINE_LAMBDA {
        const std::byte* at = values + p * w.value_stride;
        if constexpr (kRows <= 4) __builtin_prefetch(at + kAhead);
        unroll<kVectors>([&](auto v) PEWTER_INLINE_LAMBDA {
          weights[p][v] =
              widen(hn::LoadU(di, reinterpret_cast<const int32_t*>(at) + v * int{kLanes}));
        });
      });
      unroll<kRows>([&](auto r) PEWTER_INLINE_LAMBDA {
        int32_t word;
        std::memcpy(&word, x[r] + g * 128 + j, 4);
        const Quads codes = widen(hn::Set(di, word));
        unroll<kPanels>([&](auto p) PEWTER_INLINE_LAMBDA {
          unroll<kVectors>([&](auto v) PEWTER_INLINE_LAMBDA {
            acc[r][p][v] = add_products(acc[r][p][v], weights[p][v], codes);
          });
        });
      });
    }
    unroll<kRows>([&](auto r) PEWTER_INLINE_LAMBDA {
      const V unit = hn::Set(D(), code_scales(x[r], w.k)[g]);
      unroll<kPanels>([&](auto p) PEWTER_INLINE_LAMBDA {
        unroll<kVectors>([&](auto v) PEWTER_INLINE_LAMBDA {
          float* sum = sums[r] + p * kPanelOutputs + v * kLanes;
          hn::Store(hn::MulAdd(hn::ConvertTo(D(), acc[r][p][v]), unit, hn::Load(D(), sum)), D(),
                    sum);
        });
      });
    });
  }
  for (int p = 0; p < kPanels; ++p) {
    const auto* scales = reinterpret_cast<const float*>(w.scales + (panel + p) * w.scale_stride);
    for (int r = 0; r < kRows; ++r)
      for (int64_t i = 0; i < kPanelOutputs; i += kLanes)
        hn::StoreU(
            hn::Mul(hn::Load(D(), sums[r] + p * kPanelOutputs + i), hn::LoadU(D(), scales + i)),
            D(), out + r * stride + p * kPanelOutputs + i);
  }
}

void panel_rows_int8(const PanelArgs& args) {
  const Panels& w = args.w;
  // Products take registers of their own: smaller tiles.
  for_tiles<kLanes == 16 ? 8 : HWY_MIN(kTileRows, 2), kTilePair, kTileWide>(
      args, [&](auto rows, auto panels, int64_t r, int64_t p) {
        int8_tile<decltype(rows)::value, decltype(panels)::value>(
            w, p, args.codes + r, args.out + r * args.out_stride + p * kPanelOutputs,
            args.out_stride);
      });
}

}  // namespace HWY_NAMESPACE
}  // namespace pewter
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace pewter {

HWY_EXPORT(panel_rows_int8);
void panel_rows_int8(const PanelArgs& args) { HWY_DYNAMIC_DISPATCH(panel_rows_int8)(args); }

}  // namespace pewter
#endif
