// Inner products with rows of plain matrices.
//
// Split of work: the caller gives each worker some rows. Four of them side by side, straight from
// memory, times up to four inputs at a time. Bytes: the rows once per 64 inputs, x from cache.
// Precision: f32 products and sums. Limits: memory at m = 1, multiply-adds from about 8 inputs on.

#include "backend/cpu/dot.h"

#include <cstring>

#include "backend/cpu/simd.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "backend/cpu/dot.cc"
#include <hwy/foreach_target.h>
//
#include "backend/cpu/simd_inl.h"

HWY_BEFORE_NAMESPACE();
namespace pewter {
namespace HWY_NAMESPACE {

// Rows a kernel reads side by side, and the most inputs it multiplies them by: 4 × 4 sums fill the
// 32 registers of AVX-512 and NEON, 4 × 2 the 16 of AVX2; emulated lanes have none.
inline constexpr int kW = 4;
inline constexpr int kMaxX = HWY_TARGET == HWY_AVX2 ? 2 : HWY_TARGET == HWY_EMU128 ? 1 : 4;

// Inputs that meet four rows before the next four: at k = 4096 they fill 1 MiB, a core's L2.
constexpr int64_t kDirectBlock = 64;

inline constexpr int kParts = static_cast<int>(kInputUnit / kLanes);

template <typename T>
HWY_INLINE V load_floats(const T* at) {
  if constexpr (sizeof(T) == 4)
    return hn::LoadU(D(), at);
  else
    return hn::PromoteTo(D(), hn::LoadU(hn::Rebind<T, D>(), at));
}

// The last inputs of a row as a whole unit, zeros beyond.
template <typename T>
HWY_NOINLINE const T* pad_unit(const T* at, int64_t count, T* buffer) {
  std::memset(static_cast<void*>(buffer), 0, kInputUnit * sizeof(T));
  std::memcpy(static_cast<void*>(buffer), at, static_cast<size_t>(count) * sizeof(T));
  return buffer;
}

// Rows row … row + kW − 1 times inputs r … r + kX − 1.
template <typename T, int kX>
HWY_NOINLINE void dot_tile(const DotArgs& args, int64_t row, int64_t r) {
  const T* w[kW];
  for (int64_t j = 0; j < kW; ++j)  // past the last row: that row again, its result dropped
    w[j] = reinterpret_cast<const T*>(args.w.values +
                                      HWY_MIN(row + j, args.end - 1) * args.w.row_bytes);
  const float* const* x = args.x + r;
  V acc[kW][kX];
  unroll<kX>([&](auto i) PEWTER_INLINE_LAMBDA {
    unroll<kW>([&](auto j) PEWTER_INLINE_LAMBDA { acc[j][i] = hn::Zero(D()); });
  });
  T padded[kW][kInputUnit];
  for (int64_t at = 0; at < args.w.k; at += kInputUnit) {
    const T* from[kW];
    unroll<kW>([&](auto j) PEWTER_INLINE_LAMBDA { from[j] = w[j] + at; });
    if (HWY_UNLIKELY(at + kInputUnit > args.w.k))
      unroll<kW>([&](auto j) PEWTER_INLINE_LAMBDA {
        from[j] = pad_unit(from[j], args.w.k - at, padded[j]);
      });
    unroll<kParts>([&](auto part) PEWTER_INLINE_LAMBDA {
      V weights[kW];
      unroll<kW>([&](auto j)
                     PEWTER_INLINE_LAMBDA { weights[j] = load_floats(from[j] + part * kLanes); });
      unroll<kX>([&](auto i) PEWTER_INLINE_LAMBDA {
        const V input = hn::LoadU(D(), x[i] + at + part * kLanes);
        unroll<kW>([&](auto j) PEWTER_INLINE_LAMBDA {
          acc[j][i] = hn::MulAdd(weights[j], input, acc[j][i]);
        });
      });
    });
  }
  float* out = args.out + r * args.out_stride + row - args.begin;
  const int64_t outputs = args.end - row;
  unroll<kX>([&](auto i) PEWTER_INLINE_LAMBDA {
    unroll<kW>([&](auto j) PEWTER_INLINE_LAMBDA {
      if (j < outputs) out[i * args.out_stride + j] = sum(acc[j][i]);
    });
  });
}

template <typename T>
void dot_format(const DotArgs& args) {
  for (int64_t first = 0; first < args.m; first += kDirectBlock) {
    const int64_t stop = HWY_MIN(args.m, first + kDirectBlock);
    for (int64_t row = args.begin; row < args.end; row += kW) {
      int64_t r = first;
      for (; r + kMaxX <= stop; r += kMaxX) dot_tile<T, kMaxX>(args, row, r);
      if constexpr (kMaxX == 4) {
        if (stop - r == 3) dot_tile<T, 3>(args, row, r);
        if (stop - r == 2) dot_tile<T, 2>(args, row, r);
      }
      if (kMaxX > 1 && stop - r == 1) dot_tile<T, 1>(args, row, r);
    }
  }
}

void dot_rows(const DotArgs& args) {
  switch (args.w.format) {
    case WeightFormat::kF32:
      return dot_format<float>(args);
    case WeightFormat::kF16:
      return dot_format<hwy::float16_t>(args);
    case WeightFormat::kBF16:
      return dot_format<hwy::bfloat16_t>(args);
    default:
      CHECK(false, weight_format_name(args.w.format), " has panels");
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace pewter
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace pewter {

HWY_EXPORT(dot_rows);
void dot_rows(const DotArgs& args) { HWY_DYNAMIC_DISPATCH(dot_rows)(args); }

MatrixRows rows_of(const WeightMatrix& w, int64_t index) {
  CHECK(w.layout == WeightMatrix::kCanonical, "matrix in layout ", w.layout);
  DCHECK(index >= 0 && index < w.count, "matrix ", index, " of ", w.count);
  return {.format = w.format,
          .k = w.k,
          .values = w.values[index].data(),
          .row_bytes = w.values.stride(1) * dtype_bytes(w.values.dtype())};
}

}  // namespace pewter
#endif
