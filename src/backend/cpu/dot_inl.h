// The inner-product kernel, compiled once per target (no include guard on purpose: foreach_target
// includes it again for each). Readers decode a vector of weights in registers, one per format;
// dot_tile multiplies four weight rows by up to kMaxX inputs.
#if defined(PEWTER_DOT_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef PEWTER_DOT_INL_H
#undef PEWTER_DOT_INL_H
#else
#define PEWTER_DOT_INL_H
#endif

#include <hwy/highway.h>

#include <cstring>
#include <utility>

#include "backend/cpu/dot.h"
#include "backend/cpu/simd_inl.h"

HWY_BEFORE_NAMESPACE();
namespace pewter {
namespace HWY_NAMESPACE {

// Weight rows a kernel reads side by side, and the most inputs it multiplies them by: 4 × 4 sums
// fill the 32 registers of AVX-512 and NEON, 4 × 2 the 16 of AVX2; emulated lanes have none.
inline constexpr int kW = 4;
inline constexpr int kMaxX = HWY_TARGET == HWY_AVX2 ? 2 : HWY_TARGET == HWY_EMU128 ? 1 : 4;

// Direct reads the weights again for each kMaxX inputs, which costs little next to 4 × 4 sums; a
// tile is decoded once but written and read back. Measured crossings at k = 4096: none below 128
// inputs for plain formats and table look-ups with 32 registers, 32 for fp8, about 8 with 16.
inline constexpr int64_t kAlways = INT64_MAX, kDirectInputs = kMaxX == 4 ? kAlways : 8;

// Readers: block(b) prepares the 128 inputs from 128·b on; unit(i) is where the unit at input i
// lies; load<P>(unit) decodes the P-th vector of a unit.

template <typename T>
struct PlainReader {
  using Element = T;
  static constexpr int64_t kMostDirect = kDirectInputs;
  const T* values;

  PlainReader(const MatrixRows& w, int64_t row, const float* /*scales*/)
      : values(reinterpret_cast<const T*>(w.values + row * w.row_bytes)) {}
  HWY_INLINE void block(int64_t /*b*/) {}
  HWY_INLINE const T* unit(int64_t i) const { return values + i; }
  template <int kPart>
  HWY_INLINE V load(const T* at) const {
    at += kPart * kLanes;
    if constexpr (sizeof(T) == 4)
      return hn::LoadU(D(), at);
    else
      return hn::PromoteTo(D(), hn::LoadU(hn::Rebind<T, D>(), at));
  }
};

// An E4M3 code shifted into half-float position is its value / 2⁸, subnormals included; 2⁸ joins
// the scale, and both steps are exact. The NaN codes 0x7F and 0xFF read as ±480.
struct Fp8Reader {
  using Element = int8_t;
  static constexpr int64_t kMostDirect = HWY_MIN(kDirectInputs, int64_t{32});
  const int8_t* values;
  const float* scales;
  V scale;

  Fp8Reader(const MatrixRows& w, int64_t row, const float* row_scales)
      : values(reinterpret_cast<const int8_t*>(w.values + row * w.row_bytes)),
        scales(row_scales),
        scale(hn::Zero(D())) {}
  HWY_INLINE void block(int64_t b) { scale = hn::Set(D(), scales[b] * 256.0f); }
  HWY_INLINE const int8_t* unit(int64_t i) const { return values + i; }
  template <int kPart>
  HWY_INLINE V load(const int8_t* at) const {
    const hn::Rebind<int16_t, D> d16;
    const hn::Rebind<hwy::float16_t, D> half;
    const auto wide = hn::PromoteTo(d16, hn::LoadU(hn::Rebind<int8_t, D>(), at + kPart * kLanes));
    const auto bits = hn::And(hn::ShiftLeft<7>(wide), hn::Set(d16, static_cast<int16_t>(0xBFFF)));
    return hn::Mul(hn::PromoteTo(D(), hn::BitCast(half, bits)), scale);
  }
};

// Sixteen bytes hold a unit: its even inputs in the low nibbles, its odd ones in the high. With 16
// lanes the 16 possible weights of a group fit one register and a code selects its own.
struct Int4Reader {
  using Element = uint8_t;
  static constexpr int64_t kMostDirect = kLanes == 16 ? kDirectInputs : 8;
  const uint8_t* values;
  const uint8_t* zeros;
  const float* scales;
  V first, second;  // 16 lanes: the table; fewer: zero point and scale

  Int4Reader(const MatrixRows& w, int64_t row, const float* row_scales)
      : values(reinterpret_cast<const uint8_t*>(w.values + row * w.row_bytes)),
        zeros(w.zeros == nullptr ? nullptr : w.zeros + row * w.zero_row_bytes),
        scales(row_scales),
        first(hn::Zero(D())),
        second(hn::Zero(D())) {}
  HWY_INLINE void block(int64_t b) {
    const V zero = hn::Set(D(), zeros == nullptr ? 8.0f : static_cast<float>(zeros[b]));
    const V scale = hn::Set(D(), scales[b]);
    if constexpr (kLanes == 16) {
      first = hn::Mul(hn::Sub(hn::Iota(D(), 0.0f), zero), scale);
    } else {
      first = zero;
      second = scale;
    }
  }
  HWY_INLINE const uint8_t* unit(int64_t i) const { return values + i / 2; }
  template <int kPart>
  HWY_INLINE V load(const uint8_t* at) const {
    constexpr int kHalf = static_cast<int>(kInputUnit) / 2;
    constexpr int kPosition = kPart * static_cast<int>(kLanes);
    const hn::Rebind<uint32_t, D> du;
    const hn::Rebind<int32_t, D> di;
    auto code = hn::PromoteTo(du, hn::LoadU(hn::Rebind<uint8_t, D>(), at + kPosition % kHalf));
    if constexpr (kPosition >= kHalf)
      code = hn::ShiftRight<4>(code);
    else
      code = hn::And(code, hn::Set(du, 15u));
    if constexpr (kLanes == 16)
      return hn::TableLookupLanes(first, hn::IndicesFromVec(D(), code));
    else
      return hn::Mul(hn::Sub(hn::ConvertTo(D(), hn::BitCast(di, code)), first), second);
  }
};

inline constexpr int kParts = static_cast<int>(kInputUnit / kLanes);

// The last inputs of a row as a whole unit, zeros beyond. (int4 rows are whole groups.)
template <typename T>
HWY_NOINLINE const T* pad_unit(const T* at, int64_t count, T* buffer) {
  std::memset(static_cast<void*>(buffer), 0, kInputUnit * sizeof(T));
  std::memcpy(static_cast<void*>(buffer), at, static_cast<size_t>(count) * sizeof(T));
  return buffer;
}

// One weight row, inputs [begin, end) as floats at out, zeros up to whole units.
template <class Reader>
HWY_INLINE void decode_inputs(Reader w, int64_t begin, int64_t end, float* out) {
  typename Reader::Element padded[kInputUnit];
  for (int64_t b = begin; b < end; b += 128) {
    w.block(b / 128);
    const int64_t stop = HWY_MIN(b + 128, end);
    for (int64_t i = b; i < stop; i += kInputUnit) {
      const auto* at = w.unit(i);
      if (HWY_UNLIKELY(i + kInputUnit > stop)) at = pad_unit(at, stop - i, padded);
      unroll<kParts>([&](auto part) PEWTER_INLINE_LAMBDA {
        hn::StoreU(w.template load<part>(at), D(), out + i - begin + part * kLanes);
      });
    }
  }
}

// Where a tile's sums come from and go to. `resume` holds the lanes of unfinished sums, input row
// by input row.
struct TileSums {
  float* resume = nullptr;    // [kX][resume_stride] of [kW][kLanes]
  int64_t resume_stride = 0;  // floats between input rows
  bool first = true, last = true;
  float* out = nullptr;  // [kX][out_stride], the first `outputs` of kW are written
  int64_t out_stride = 0, outputs = kW;
};

// Adds inputs [begin, end) of kW weight rows times kX vectors; x_offset is begin's place in x.
template <class Reader, int kX>
HWY_INLINE void dot_tile(Reader (&w)[kW], const float* const* x, int64_t begin, int64_t end,
                         int64_t x_offset, const TileSums& sums) {
  V acc[kW][kX];
  const float* xs[kX];
  unroll<kX>([&](auto r) PEWTER_INLINE_LAMBDA {
    xs[r] = x[r] + x_offset;
    unroll<kW>([&](auto j) PEWTER_INLINE_LAMBDA {
      acc[j][r] = sums.first ? hn::Zero(D())
                             : hn::Load(D(), sums.resume + r * sums.resume_stride + j * kLanes);
    });
  });
  typename Reader::Element padded[kW][kInputUnit];
  for (int64_t b = begin; b < end; b += 128) {
    unroll<kW>([&](auto j) PEWTER_INLINE_LAMBDA { w[j].block(b / 128); });
    const int64_t stop = HWY_MIN(b + 128, end);
    for (int64_t i = b; i < stop; i += kInputUnit) {
      const typename Reader::Element* at[kW];
      unroll<kW>([&](auto j) PEWTER_INLINE_LAMBDA { at[j] = w[j].unit(i); });
      if (HWY_UNLIKELY(i + kInputUnit > stop))
        unroll<kW>([&](auto j)
                       PEWTER_INLINE_LAMBDA { at[j] = pad_unit(at[j], stop - i, padded[j]); });
      unroll<kParts>([&](auto part) PEWTER_INLINE_LAMBDA {
        V weights[kW];
        unroll<kW>([&](auto j)
                       PEWTER_INLINE_LAMBDA { weights[j] = w[j].template load<part>(at[j]); });
        unroll<kX>([&](auto r) PEWTER_INLINE_LAMBDA {
          const V input = hn::LoadU(D(), xs[r] + i - begin + part * kLanes);
          unroll<kW>([&](auto j) PEWTER_INLINE_LAMBDA {
            acc[j][r] = hn::MulAdd(weights[j], input, acc[j][r]);
          });
        });
      });
    }
  }
  unroll<kX>([&](auto r) PEWTER_INLINE_LAMBDA {
    unroll<kW>([&](auto j) PEWTER_INLINE_LAMBDA {
      if (!sums.last)
        hn::Store(acc[j][r], D(), sums.resume + r * sums.resume_stride + j * kLanes);
      else if (j < sums.outputs)
        sums.out[r * sums.out_stride + j] = hn::GetLane(hn::SumOfLanes(D(), acc[j][r]));
    });
  });
}

}  // namespace HWY_NAMESPACE
}  // namespace pewter
HWY_AFTER_NAMESPACE();

#endif
