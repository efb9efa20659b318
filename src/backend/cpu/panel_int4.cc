// int4 panels times rows of codes where the processor has no dot products of bytes: the same exact
// integers by other instructions, so that results have the bits of panel_avx512.cc's.
//
// Split of work: the tiles of panel_tiles_inl.h. Bytes: the panels once (again from cache for every
// tile of rows). Precision: exact up to the f32 sum over groups. Limits: multiplications; memory
// for one row with AVX2.

#include "backend/cpu/panel_rows.h"
#include "backend/cpu/simd.h"
#include "tensor/formats/int4_group128.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "backend/cpu/panel_int4.cc"
#include <hwy/foreach_target.h>
//
#include "backend/cpu/panel_tiles_inl.h"

HWY_BEFORE_NAMESPACE();
namespace pewter {
namespace HWY_NAMESPACE {

using I = hn::Rebind<int32_t, D>;
using VI = hn::Vec<I>;
using Bytes = hn::Vec<D32>;  // four codes a lane

// sum + Σ of the four products of each lane: w in 0…15, x in ±127.
HWY_INLINE VI add_products(VI sum, Bytes w, Bytes x) {
#if HWY_TARGET == HWY_AVX3
  const __m512i pairs = _mm512_maddubs_epi16(w.raw, x.raw);  // at most 3,810: no saturation
  return hn::Add(sum, VI{_mm512_madd_epi16(pairs, _mm512_set1_epi16(1))});
#elif HWY_TARGET == HWY_AVX2
  const __m256i pairs = _mm256_maddubs_epi16(w.raw, x.raw);
  return hn::Add(sum, VI{_mm256_madd_epi16(pairs, _mm256_set1_epi16(1))});
#else
  const I di;
  const auto byte_of = [&](Bytes word, auto i) PEWTER_INLINE_LAMBDA {
    return hn::ShiftRight<24>(hn::BitCast(di, hn::ShiftLeft<24 - 8 * i>(word)));
  };
  unroll<4>([&](auto i) PEWTER_INLINE_LAMBDA {
    sum = hn::Add(sum, hn::Mul(byte_of(w, i), byte_of(x, i)));
  });
  return sum;
#endif
}

// The 16 scales of a group as floats.
HWY_INLINE void load_scales(const std::byte* at, DType dtype, float* out) {
  if (dtype == DType::kF32) {
    std::memcpy(out, at, kPanelOutputs * sizeof(float));
  } else if (dtype == DType::kBF16) {
    for (int64_t i = 0; i < kPanelOutputs; i += kLanes)
      hn::StoreU(load(reinterpret_cast<const BFloat16*>(at) + i, kLanes), D(), out + i);
  } else {
    const hn::Rebind<hwy::float16_t, D> half;
    for (int64_t i = 0; i < kPanelOutputs; i += kLanes)
      hn::StoreU(
          hn::PromoteTo(D(), hn::LoadU(half, reinterpret_cast<const hwy::float16_t*>(at) + i)), D(),
          out + i);
  }
}

template <int kRows, int kPanels>
HWY_NOINLINE void int4_tile(const Panels& w, int64_t panel, const int8_t* const* x, float* out,
                            int64_t stride) {
  const I di;
  HWY_ALIGN float sums[kRows][kPanels * kPanelOutputs] = {};
  HWY_ALIGN float scale[kPanelOutputs];
  const auto nibble = hn::Set(D32(), 0x0F0F0F0Fu);
  const int64_t groups = w.k / kInt4Group, scale_bytes = kPanelOutputs * dtype_bytes(w.scale_dtype);
  for (int64_t g = 0; g < groups; ++g) {
    VI acc[kRows][kPanels][kVectors];
    unroll<kRows>([&](auto r) PEWTER_INLINE_LAMBDA {
      const VI offset = hn::Set(di, code_offsets(x[r], w.k)[g]);
      unroll<kPanels>([&](auto p) PEWTER_INLINE_LAMBDA {
        unroll<kVectors>([&](auto v) PEWTER_INLINE_LAMBDA {
          acc[r][p][v] = offset;
          if (HWY_UNLIKELY(w.zeros != nullptr)) {  // −8·Σ · zero / 8, exactly
            const uint8_t* zeros = w.zeros + (panel + p) * w.zero_stride + g * kPanelOutputs;
            const auto zero =
                hn::PromoteTo(di, hn::LoadU(hn::Rebind<uint8_t, D>(), zeros + v * kLanes));
            acc[r][p][v] = hn::ShiftRight<3>(hn::Mul(offset, zero));
          }
        });
      });
    });
    const std::byte* values = w.values + panel * w.value_stride + g * (kInt4Group * 8);
    for (int64_t j = 0; j < kInt4Group; j += 8, values += 4 * kPanelOutputs) {
      Bytes first[kPanels][kVectors], second[kPanels][kVectors];
      unroll<kPanels>([&](auto p) PEWTER_INLINE_LAMBDA {
        const std::byte* at = values + p * w.value_stride;
        if constexpr (kRows <= 4) __builtin_prefetch(at + kAhead);
        unroll<kVectors>([&](auto v) PEWTER_INLINE_LAMBDA {
          const auto both =
              hn::LoadU(D32(), reinterpret_cast<const uint32_t*>(at) + v * int{kLanes});
          first[p][v] = hn::And(both, nibble);
          second[p][v] = hn::And(hn::ShiftRight<4>(both), nibble);
        });
      });
      unroll<kRows>([&](auto r) PEWTER_INLINE_LAMBDA {
        uint32_t words[2];
        std::memcpy(words, x[r] + g * kInt4Group + j, 8);
        const auto a = hn::Set(D32(), words[0]), b = hn::Set(D32(), words[1]);
        unroll<kPanels>([&](auto p) PEWTER_INLINE_LAMBDA {
          unroll<kVectors>([&](auto v) PEWTER_INLINE_LAMBDA {
            acc[r][p][v] = add_products(acc[r][p][v], first[p][v], a);
            acc[r][p][v] = add_products(acc[r][p][v], second[p][v], b);
          });
        });
      });
    }
    unroll<kPanels>([&](auto p) PEWTER_INLINE_LAMBDA {
      load_scales(w.scales + (panel + p) * w.scale_stride + g * scale_bytes, w.scale_dtype, scale);
      unroll<kRows>([&](auto r) PEWTER_INLINE_LAMBDA {
        const V unit = hn::Set(D(), code_scales(x[r], w.k)[g]);
        unroll<kVectors>([&](auto v) PEWTER_INLINE_LAMBDA {
          const V both = hn::Mul(hn::Load(D(), scale + v * kLanes), unit);
          float* sum = sums[r] + p * kPanelOutputs + v * kLanes;
          hn::Store(hn::MulAdd(hn::ConvertTo(D(), acc[r][p][v]), both, hn::Load(D(), sum)), D(),
                    sum);
        });
      });
    });
  }
  for (int r = 0; r < kRows; ++r)
    for (int i = 0; i < kPanels * kPanelOutputs; i += static_cast<int>(kLanes))
      hn::StoreU(hn::Load(D(), sums[r] + i), D(), out + r * stride + i);
}

void panel_rows_int4(const PanelArgs& args) {
  const Panels& w = args.w;
  // Products take registers of their own: smaller tiles.
  for_tiles<kLanes == 16 ? 8 : HWY_MIN(kTileRows, 2), kTilePair, kTileWide>(
      args, [&](auto rows, auto panels, int64_t r, int64_t p) {
        int4_tile<decltype(rows)::value, decltype(panels)::value>(
            w, p, args.codes + r, args.out + r * args.out_stride + p * kPanelOutputs,
            args.out_stride);
      });
}

}  // namespace HWY_NAMESPACE
}  // namespace pewter
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace pewter {

HWY_EXPORT(panel_rows_int4);
void panel_rows_int4(const PanelArgs& args) { HWY_DYNAMIC_DISPATCH(panel_rows_int4)(args); }

}  // namespace pewter
#endif
