// Panels times rows by the dot products of Arm: sdot for int4 and int8, smmla for int4, bfdot for
// bf16. Intrinsics, because Highway 1.0 has none of them; each region carries its instruction set.
//
// Split of work: 4 rows × 1 panel in registers (a panel is four of them), 1 row × 2 panels when
// there is one; the matrix form takes 4 rows as two pairs. Bytes: the panels once (again from cache
// for every tile of rows). Nibbles are unsigned, and as signed bytes they are the same numbers, so
// that sdot serves. Precision: int4 exact up to the f32 sum over groups; bf16 products are exact,
// their pairs add with one rounding. Limits: memory for one row, dot products for many.

#include "backend/cpu/panel_rows.h"

#if defined(__aarch64__)

#include <arm_neon.h>
#include <hwy/base.h>

#include <utility>

#include "backend/cpu/panel_tiles.h"

#define PEWTER_INLINE __attribute__((always_inline))

namespace pewter {
namespace {

constexpr int64_t kGroup = 128, kGroupBytes = 1024, kLoad = 64;
constexpr int kQuads = 4;  // registers of a panel's 16 outputs

template <class F, int... kIndex>
PEWTER_INLINE inline void unroll_sequence(const F& f, std::integer_sequence<int, kIndex...>) {
  (f(std::integral_constant<int, kIndex>()), ...);
}

inline void load_scales(const std::byte* at, DType dtype, float* out) {
  for (int i = 0; i < 16; ++i) out[i] = load_float(at, dtype, i);
}

// What int4 kernels share: the group loop's head and tail. Sums start at −8·Σ of the codes, or
// −zero·Σ, and end in out += sum · scale · the row's scale.
inline int32x4_t first_sum(const Panels& w, int64_t panel, int64_t g, int quad, const int8_t* x) {
  const int32_t offset = code_offsets(x, w.k)[g];
  if (w.zeros == nullptr) return vdupq_n_s32(offset);
  const uint8_t* zeros = w.zeros + panel * w.zero_stride + g * 16 + quad * 4;
  const int32x4_t zero = {zeros[0], zeros[1], zeros[2], zeros[3]};
  return vshrq_n_s32(vmulq_n_s32(zero, offset), 3);  // −8·Σ · zero / 8, exactly
}
inline void add_group(int32x4_t sum, const float* scale, float unit, float* out) {
  const float32x4_t both = vmulq_n_f32(vld1q_f32(scale), unit);
  vst1q_f32(out, vfmaq_f32(vld1q_f32(out), vcvtq_f32_s32(sum), both));
}

}  // namespace
}  // namespace pewter

HWY_PUSH_ATTRIBUTES("arch=armv8.2-a+dotprod")
namespace pewter {
namespace {

template <int kRows, int kPanels>
__attribute__((noinline)) void int4_dot_tile(const Panels& w, int64_t panel, const int8_t* const* x,
                                             float* out, int64_t stride) {
  const uint8x16_t low = vdupq_n_u8(0x0F);
  for (int r = 0; r < kRows; ++r)
    for (int p = 0; p < kPanels; ++p)
      for (int q = 0; q < kQuads; ++q) vst1q_f32(out + r * stride + p * 16 + q * 4, vdupq_n_f32(0));
  for (int64_t g = 0; g < w.k / kGroup; ++g) {
    int32x4_t acc[kRows][kPanels][kQuads];
#pragma GCC unroll 16
    for (int r = 0; r < kRows; ++r)
#pragma GCC unroll 16
      for (int p = 0; p < kPanels; ++p)
#pragma GCC unroll 16
        for (int q = 0; q < kQuads; ++q) acc[r][p][q] = first_sum(w, panel + p, g, q, x[r]);
    for (int64_t j = 0; j < kGroup; j += 8) {
#pragma GCC unroll 16
      for (int p = 0; p < kPanels; ++p) {
        const auto* from = reinterpret_cast<const uint8_t*>(
            w.values + (panel + p) * w.value_stride + g * kGroupBytes + j * (kLoad / 8));
#pragma GCC unroll 16
        for (int q = 0; q < kQuads; ++q) {
          const uint8x16_t both = vld1q_u8(from + q * 16);
          const int8x16_t first = vreinterpretq_s8_u8(vandq_u8(both, low));
          const int8x16_t second = vreinterpretq_s8_u8(vshrq_n_u8(both, 4));
#pragma GCC unroll 16
          for (int r = 0; r < kRows; ++r) {
            const int8x8_t input = vld1_s8(x[r] + g * kGroup + j);
            acc[r][p][q] = vdotq_lane_s32(acc[r][p][q], first, input, 0);
            acc[r][p][q] = vdotq_lane_s32(acc[r][p][q], second, input, 1);
          }
        }
      }
    }
#pragma GCC unroll 16
    for (int p = 0; p < kPanels; ++p) {
      float scale[16];
      load_scales(w.scales + (panel + p) * w.scale_stride + g * 16 * dtype_bytes(w.scale_dtype),
                  w.scale_dtype, scale);
#pragma GCC unroll 16
      for (int r = 0; r < kRows; ++r)
#pragma GCC unroll 16
        for (int q = 0; q < kQuads; ++q)
          add_group(acc[r][p][q], scale + q * 4, code_scales(x[r], w.k)[g],
                    out + r * stride + p * 16 + q * 4);
    }
  }
}

template <int kRows, int kPanels>
__attribute__((noinline)) void int8_dot_tile(const Panels& w, int64_t panel, const int8_t* const* x,
                                             float* out, int64_t stride) {
  float32x4_t sums[kRows][kPanels][kQuads];
  for (auto& row : sums)
    for (auto& quads : row)
      for (float32x4_t& sum : quads) sum = vdupq_n_f32(0);
  for (int64_t g = 0; g < code_groups(w.k); ++g) {
    int32x4_t acc[kRows][kPanels][kQuads];
#pragma GCC unroll 16
    for (int r = 0; r < kRows; ++r)
#pragma GCC unroll 16
      for (int p = 0; p < kPanels; ++p)
#pragma GCC unroll 16
        for (int q = 0; q < kQuads; ++q) acc[r][p][q] = vdupq_n_s32(0);
    for (int64_t j = 0; j < kGroup; j += 4) {
#pragma GCC unroll 16
      for (int p = 0; p < kPanels; ++p) {
        const auto* from = reinterpret_cast<const int8_t*>(w.values + (panel + p) * w.value_stride +
                                                           (g * kGroup + j) * (kLoad / 4));
#pragma GCC unroll 16
        for (int q = 0; q < kQuads; ++q) {
          const int8x16_t weights = vld1q_s8(from + q * 16);
#pragma GCC unroll 16
          for (int r = 0; r < kRows; ++r) {
            int32_t codes;
            __builtin_memcpy(&codes, x[r] + g * kGroup + j, 4);
            acc[r][p][q] =
                vdotq_s32(acc[r][p][q], weights, vreinterpretq_s8_s32(vdupq_n_s32(codes)));
          }
        }
      }
    }
#pragma GCC unroll 16
    for (int r = 0; r < kRows; ++r)
#pragma GCC unroll 16
      for (int p = 0; p < kPanels; ++p)
#pragma GCC unroll 16
        for (int q = 0; q < kQuads; ++q)
          sums[r][p][q] =
              vfmaq_n_f32(sums[r][p][q], vcvtq_f32_s32(acc[r][p][q]), code_scales(x[r], w.k)[g]);
  }
  for (int p = 0; p < kPanels; ++p) {
    const auto* scales = reinterpret_cast<const float*>(w.scales + (panel + p) * w.scale_stride);
    for (int r = 0; r < kRows; ++r)
      for (int q = 0; q < kQuads; ++q)
        vst1q_f32(out + r * stride + p * 16 + q * 4,
                  vmulq_f32(sums[r][p][q], vld1q_f32(scales + q * 4)));
  }
}

}  // namespace
}  // namespace pewter
HWY_POP_ATTRIBUTES

HWY_PUSH_ATTRIBUTES("arch=armv8.2-a+dotprod+i8mm")
namespace pewter {
namespace {

// Two rows at a time: smmla multiplies 2 outputs × 8 inputs by 2 rows × 8 inputs. Of a register of
// first nibbles (inputs 0 … 3 of four outputs) and one of second ones (inputs 4 … 7), zips make the
// eight inputs of two outputs.
template <int kPairs>
__attribute__((noinline)) void int4_matrix_tile(const Panels& w, int64_t panel,
                                                const int8_t* const* x, float* out,
                                                int64_t stride) {
  constexpr int kRows = 2 * kPairs;
  const uint8x16_t low = vdupq_n_u8(0x0F);
  for (int r = 0; r < kRows; ++r)
    for (int q = 0; q < kQuads; ++q) vst1q_f32(out + r * stride + q * 4, vdupq_n_f32(0));
  for (int64_t g = 0; g < w.k / kGroup; ++g) {
    // Lanes: outputs o, o + 1 of the pair's first row, then of its second.
    int32x4_t acc[kPairs][kQuads][2];
#pragma GCC unroll 16
    for (int i = 0; i < kPairs; ++i)
#pragma GCC unroll 16
      for (int q = 0; q < kQuads; ++q) acc[i][q][0] = acc[i][q][1] = vdupq_n_s32(0);
    for (int64_t j = 0; j < kGroup; j += 8) {
      const auto* from = reinterpret_cast<const uint8_t*>(w.values + panel * w.value_stride +
                                                          g * kGroupBytes + j * (kLoad / 8));
      int8x16_t rows[kPairs];
#pragma GCC unroll 16
      for (int i = 0; i < kPairs; ++i)
        rows[i] =
            vcombine_s8(vld1_s8(x[2 * i] + g * kGroup + j), vld1_s8(x[2 * i + 1] + g * kGroup + j));
#pragma GCC unroll 16
      for (int q = 0; q < kQuads; ++q) {
        const uint8x16_t both = vld1q_u8(from + q * 16);
        const int32x4_t first = vreinterpretq_s32_u8(vandq_u8(both, low));
        const int32x4_t second = vreinterpretq_s32_u8(vshrq_n_u8(both, 4));
        const int8x16_t lower = vreinterpretq_s8_s32(vzip1q_s32(first, second));
        const int8x16_t upper = vreinterpretq_s8_s32(vzip2q_s32(first, second));
#pragma GCC unroll 16
        for (int i = 0; i < kPairs; ++i) {
          acc[i][q][0] = vmmlaq_s32(acc[i][q][0], rows[i], lower);
          acc[i][q][1] = vmmlaq_s32(acc[i][q][1], rows[i], upper);
        }
      }
    }
    float scale[16];
    load_scales(w.scales + panel * w.scale_stride + g * 16 * dtype_bytes(w.scale_dtype),
                w.scale_dtype, scale);
#pragma GCC unroll 16
    for (int i = 0; i < kPairs; ++i)
#pragma GCC unroll 16
      for (int q = 0; q < kQuads; ++q) {
        const int64x2_t a = vreinterpretq_s64_s32(acc[i][q][0]);
        const int64x2_t b = vreinterpretq_s64_s32(acc[i][q][1]);
        const int32x4_t sums[2] = {vreinterpretq_s32_s64(vzip1q_s64(a, b)),
                                   vreinterpretq_s32_s64(vzip2q_s64(a, b))};
#pragma GCC unroll 16
        for (int r = 0; r < 2; ++r)
          add_group(vaddq_s32(sums[r], first_sum(w, panel, g, q, x[2 * i + r])), scale + q * 4,
                    code_scales(x[2 * i + r], w.k)[g], out + (2 * i + r) * stride + q * 4);
      }
  }
}

}  // namespace
}  // namespace pewter
HWY_POP_ATTRIBUTES

HWY_PUSH_ATTRIBUTES("arch=armv8.2-a+bf16")
namespace pewter {
namespace {

template <int kRows, int kPanels>
__attribute__((noinline)) void bf16_tile(const Panels& w, int64_t panel, const BFloat16* const* x,
                                         float* out, int64_t stride) {
  float32x4_t acc[kRows][kPanels][kQuads];
#pragma GCC unroll 16
  for (int r = 0; r < kRows; ++r)
#pragma GCC unroll 16
    for (int p = 0; p < kPanels; ++p)
#pragma GCC unroll 16
      for (int q = 0; q < kQuads; ++q) acc[r][p][q] = vdupq_n_f32(0);
  for (int64_t i = 0; i < w.k; i += 2) {
#pragma GCC unroll 16
    for (int p = 0; p < kPanels; ++p) {
      const auto* from = reinterpret_cast<const bfloat16_t*>(
          w.values + (panel + p) * w.value_stride + i * (kLoad / 2));
#pragma GCC unroll 16
      for (int q = 0; q < kQuads; ++q) {
        const bfloat16x8_t weights = vld1q_bf16(from + q * 8);
#pragma GCC unroll 16
        for (int r = 0; r < kRows; ++r) {
          uint32_t pair;
          __builtin_memcpy(&pair, x[r] + i, 4);
          acc[r][p][q] =
              vbfdotq_f32(acc[r][p][q], weights, vreinterpretq_bf16_u32(vdupq_n_u32(pair)));
        }
      }
    }
  }
#pragma GCC unroll 16
  for (int r = 0; r < kRows; ++r)
#pragma GCC unroll 16
    for (int p = 0; p < kPanels; ++p)
#pragma GCC unroll 16
      for (int q = 0; q < kQuads; ++q) vst1q_f32(out + r * stride + p * 16 + q * 4, acc[r][p][q]);
}

}  // namespace
}  // namespace pewter
HWY_POP_ATTRIBUTES

namespace pewter {

void panel_rows_int4_neon(const PanelArgs& args) {
  for_tiles<4, 1, 2>(args, [&](auto rows, auto panels, int64_t r, int64_t p) {
    int4_dot_tile<decltype(rows)::value, decltype(panels)::value>(
        args.w, p, args.codes + r, args.out + r * args.out_stride + p * 16, args.out_stride);
  });
}

void panel_rows_int8_neon(const PanelArgs& args) {
  for_tiles<4, 1, 2>(args, [&](auto rows, auto panels, int64_t r, int64_t p) {
    int8_dot_tile<decltype(rows)::value, decltype(panels)::value>(
        args.w, p, args.codes + r, args.out + r * args.out_stride + p * 16, args.out_stride);
  });
}

void panel_rows_int4_neon_matrix(const PanelArgs& args) {
  for_tiles<4, 1, 1>(args, [&](auto rows, auto, int64_t r, int64_t p) {
    constexpr int kRows = decltype(rows)::value;
    float* out = args.out + r * args.out_stride + p * 16;
    if constexpr (kRows == 1)
      int4_dot_tile<1, 1>(args.w, p, args.codes + r, out, args.out_stride);
    else
      int4_matrix_tile<kRows / 2>(args.w, p, args.codes + r, out, args.out_stride);
  });
}

void panel_rows_bf16_neon(const PanelArgs& args) {
  for_tiles<4, 1, 2>(args, [&](auto rows, auto panels, int64_t r, int64_t p) {
    bf16_tile<decltype(rows)::value, decltype(panels)::value>(
        args.w, p, args.halves + r, args.out + r * args.out_stride + p * 16, args.out_stride);
  });
}

}  // namespace pewter

#endif
