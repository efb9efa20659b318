// Panels times rows by the dot products of AVX-512: VNNI for int4 and int8, BF16 for bf16.
// Highway 1.0 has neither, so these are intrinsics.
//
// Split of work: 8 rows × 2 panels in registers (bf16: 12 × 2), 1 row × 4 panels when there is one.
// Bytes: the panels once (again from cache for every tile of rows), 4 bytes of a row for each two
// products. Of int4, a load of 64 bytes is unpacked into two products with three operations, shared
// by the tile's rows; of int8, a load is one product, and the instruction wants it unsigned. A
// group of 128 inputs is summed in exact integers, then scaled into an f32 sum; int8's own scale
// comes last. Precision: bf16 products are exact, their pairs are added with one rounding, to
// nearest. Limits: memory for one row, dot products from about 8 rows on (`pewter bench prefill`
// divides by the peak of the same instruction).

#include "backend/cpu/panel_rows.h"

#if defined(__x86_64__)

#include <hwy/base.h>
#include <immintrin.h>

#include <utility>

#include "backend/cpu/panel_scales_avx512.h"
#include "backend/cpu/panel_tiles.h"

// g++ 12's own headers build "undefined" vectors in a way that this warning sees.
#if !defined(__clang__)
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#endif

// Everything up to the end of the region may use these instructions, lambdas included. A machine
// without BF16 runs the kernel of codes alone; nothing in it uses more than VNNI.
HWY_PUSH_ATTRIBUTES("avx2,fma,f16c,avx512f,avx512bw,avx512dq,avx512vl,avx512vnni,avx512bf16")
namespace pewter {
namespace {

#define PEWTER_INLINE __attribute__((always_inline))

// The sums' own type: as __m512i, which is eight int64_t, each would change its type twice a step,
// and g++ then gives the two types registers of their own.
using Sums = int32_t __attribute__((vector_size(64)));

constexpr int64_t kGroup = 128, kLoad = 64;
// Bytes ahead of a stream that a few rows ask for: memory's latency at a core's bandwidth.
constexpr int64_t kAhead = 2048;

// f(0), f(1), … with indexes known at compile time, so that arrays of vectors stay in registers.
template <class F, int... kIndex>
PEWTER_INLINE inline void unroll_sequence(const F& f, std::integer_sequence<int, kIndex...>) {
  (f(std::integral_constant<int, kIndex>()), ...);
}
template <int kCount, class F>
PEWTER_INLINE inline void unroll(const F& f) {
  unroll_sequence(f, std::make_integer_sequence<int, kCount>());
}
template <int kRows, int kPanels, class F>
PEWTER_INLINE inline void for_sums(const F& f) {
  unroll<kRows>([&](auto r)
                    PEWTER_INLINE { unroll<kPanels>([&](auto p) PEWTER_INLINE { f(r, p); }); });
}

// The four bytes at `at` in every lane.
PEWTER_INLINE inline __m512i broadcast(const void* at) {
  int32_t word;
  __builtin_memcpy(&word, at, 4);
  return _mm512_set1_epi32(word);
}

// sum + Σ of the four products of each lane: w unsigned, x signed.
PEWTER_INLINE inline Sums dot(Sums sum, __m512i w, __m512i x) {
  return reinterpret_cast<Sums>(_mm512_dpbusd_epi32(reinterpret_cast<__m512i>(sum), w, x));
}

// Eight inputs of 16 outputs as unsigned bytes: nibbles as they are, int8 plus 128.
template <bool kInt8>
PEWTER_INLINE inline void load_weights(const std::byte* from, __m512i& first, __m512i& second) {
  const __m512i both = _mm512_loadu_si512(from);
  if constexpr (kInt8) {
    const __m512i sign = _mm512_set1_epi8(static_cast<char>(0x80));
    first = _mm512_xor_si512(both, sign);
    second = _mm512_xor_si512(_mm512_loadu_si512(from + kLoad), sign);
  } else {
    const __m512i low = _mm512_set1_epi8(0x0F);
    first = _mm512_and_si512(both, low);
    second = _mm512_and_si512(_mm512_srli_epi16(both, 4), low);
  }
}

template <bool kInt8, int kRows, int kPanels>
__attribute__((noinline)) void code_tile(const Panels& w, int64_t panel, const int8_t* const* x,
                                         float* out, int64_t stride) {
  alignas(64) float sums[kRows][kPanels][16] = {};
  constexpr int64_t kEightInputs = kInt8 ? 2 * kLoad : kLoad,
                    kGroupBytes = kGroup / 8 * kEightInputs;
  constexpr int kToOffset = kInt8 ? 16 : 1;  // from −8·Σ
  const int64_t groups = code_groups(w.k), scale_bytes = 16 * dtype_bytes(w.scale_dtype);
  const std::byte* values = w.values + panel * w.value_stride;
  const std::byte* scales = w.scales + panel * w.scale_stride;
  for (int64_t g = 0; g < groups; ++g, values += kGroupBytes) {
    Sums acc[kRows][kPanels], other[kRows][kPanels];  // two sums where one would wait for itself
    constexpr bool kTwo = kRows * kPanels <= 4;
    for_sums<kRows, kPanels>([&](auto r, auto p) PEWTER_INLINE {
      acc[r][p] = reinterpret_cast<Sums>(_mm512_set1_epi32(kToOffset * code_offsets(x[r], w.k)[g]));
      if constexpr (kTwo) other[r][p] = Sums{};
    });
    if (__builtin_expect(w.zeros != nullptr, 0))  // −8·Σ · zero / 8, exactly
      for_sums<kRows, kPanels>([&](auto r, auto p) PEWTER_INLINE {
        const __m512i zero = _mm512_cvtepu8_epi32(_mm_loadu_si128(
            reinterpret_cast<const __m128i*>(w.zeros + (panel + p) * w.zero_stride + g * 16)));
        acc[r][p] = (acc[r][p] * reinterpret_cast<Sums>(zero)) >> 3;
      });
    const int8_t* rows[kRows];
    unroll<kRows>([&](auto r) PEWTER_INLINE { rows[r] = x[r] + g * kGroup; });
    for (int64_t j = 0; j < kGroup; j += 8) {
      __m512i first[kPanels], second[kPanels];
      unroll<kPanels>([&](auto p) PEWTER_INLINE {
        const std::byte* from = values + p * w.value_stride + j * (kEightInputs / 8);
        if constexpr (kRows <= 4)
          for (int64_t i = 0; i < kEightInputs; i += kLoad) __builtin_prefetch(from + kAhead + i);
        load_weights<kInt8>(from, first[p], second[p]);
      });
      unroll<kRows>([&](auto r) PEWTER_INLINE {
        const __m512i a = broadcast(rows[r] + j), b = broadcast(rows[r] + j + 4);
        unroll<kPanels>([&](auto p) PEWTER_INLINE { acc[r][p] = dot(acc[r][p], first[p], a); });
        unroll<kPanels>([&](auto p) PEWTER_INLINE {
          if constexpr (kTwo)
            other[r][p] = dot(other[r][p], second[p], b);
          else
            acc[r][p] = dot(acc[r][p], second[p], b);
        });
      });
    }
    if constexpr (kTwo)
      for_sums<kRows, kPanels>([&](auto r, auto p) PEWTER_INLINE { acc[r][p] += other[r][p]; });
    unroll<kPanels>([&](auto p) PEWTER_INLINE {
      __m512 scale = {};
      if constexpr (!kInt8)
        scale = load_scales(scales + p * w.scale_stride + g * scale_bytes, w.scale_dtype);
      unroll<kRows>([&](auto r) PEWTER_INLINE {
        __m512 both = _mm512_set1_ps(code_scales(x[r], w.k)[g]);
        if constexpr (!kInt8) both = _mm512_mul_ps(scale, both);
        _mm512_store_ps(sums[r][p],
                        _mm512_fmadd_ps(_mm512_cvtepi32_ps(reinterpret_cast<__m512i>(acc[r][p])),
                                        both, _mm512_load_ps(sums[r][p])));
      });
    });
  }
  for (int r = 0; r < kRows; ++r)
    for (int p = 0; p < kPanels; ++p) {
      __m512 sum = _mm512_load_ps(sums[r][p]);
      if constexpr (kInt8) sum = _mm512_mul_ps(sum, _mm512_loadu_ps(scales + p * w.scale_stride));
      _mm512_storeu_ps(out + r * stride + p * 16, sum);
    }
}

template <int kRows, int kPanels>
__attribute__((noinline)) void bf16_tile(const Panels& w, int64_t panel, const BFloat16* const* x,
                                         float* out, int64_t stride) {
  __m512 acc[kRows][kPanels];
  for_sums<kRows, kPanels>([&](auto r, auto p) PEWTER_INLINE { acc[r][p] = _mm512_setzero_ps(); });
  const BFloat16* rows[kRows];
  unroll<kRows>([&](auto r) PEWTER_INLINE { rows[r] = x[r]; });
  const std::byte* values = w.values + panel * w.value_stride;
  for (int64_t i = 0; i < w.k; i += 2, values += kLoad) {
    __m512bh weights[kPanels];
    unroll<kPanels>([&](auto p) PEWTER_INLINE {
      const std::byte* from = values + p * w.value_stride;
      if constexpr (kRows <= 4) __builtin_prefetch(from + kAhead);
      weights[p] = reinterpret_cast<__m512bh>(_mm512_loadu_si512(from));
    });
    unroll<kRows>([&](auto r) PEWTER_INLINE {
      const auto pair = reinterpret_cast<__m512bh>(broadcast(rows[r] + i));
      unroll<kPanels>(
          [&](auto p) PEWTER_INLINE { acc[r][p] = _mm512_dpbf16_ps(acc[r][p], weights[p], pair); });
    });
  }
  for_sums<kRows, kPanels>([&](auto r, auto p) PEWTER_INLINE {
    _mm512_storeu_ps(out + r * stride + p * 16, acc[r][p]);
  });
}

}  // namespace
}  // namespace pewter
HWY_POP_ATTRIBUTES

namespace pewter {

template <bool kInt8>
static void panel_rows_codes(const PanelArgs& args) {
  const Panels& w = args.w;
  for_tiles<8, 2, 4>(args, [&](auto rows, auto panels, int64_t r, int64_t p) {
    code_tile<kInt8, decltype(rows)::value, decltype(panels)::value>(
        w, p, args.codes + r, args.out + r * args.out_stride + p * 16, args.out_stride);
  });
}
void panel_rows_int4_avx512(const PanelArgs& args) { panel_rows_codes<false>(args); }
void panel_rows_int8_avx512(const PanelArgs& args) { panel_rows_codes<true>(args); }

void panel_rows_bf16_avx512(const PanelArgs& args) {
  const Panels& w = args.w;
  for_tiles<12, 2, 4>(args, [&](auto rows, auto panels, int64_t r, int64_t p) {
    bf16_tile<decltype(rows)::value, decltype(panels)::value>(
        w, p, args.halves + r, args.out + r * args.out_stride + p * 16, args.out_stride);
  });
}

}  // namespace pewter

#endif
