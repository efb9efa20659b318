// Projections by inner products.
//
// Split of work: the caller gives each worker some weight rows. Direct: four weight rows side by
// side, straight from memory and decoded in registers, times up to four inputs at a time. Tiled,
// where decoding costs more than that saves (dot_inl.h): 16 rows × 1024 inputs are decoded once for
// up to 128 inputs, and sums rest in scratch from one stretch of k to the next. Bytes: the weights
// once per 64 or 128 inputs, x from cache. Precision: weights exactly as the reference decodes
// them, f32 products and sums. Limits: memory at m = 1 (decoding, for int4 and fp8), multiply-adds
// from about 8 inputs on.

#include "backend/cpu/dot.h"

#include "backend/cpu/simd.h"
#include "tensor/formats/fp8_block128.h"
#include "tensor/formats/int4_group128.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "backend/cpu/dot.cc"
#include <hwy/foreach_target.h>
//
#include "backend/cpu/dot_inl.h"

HWY_BEFORE_NAMESPACE();
namespace pewter {
namespace HWY_NAMESPACE {

// Inputs that meet four weight rows before the next four: at k = 4096 they fill 1 MiB, a core's L2.
constexpr int64_t kDirectBlock = 64;

// Scales of `rows` weight rows from `begin` on as floats, [rows][⌈k/128⌉].
void load_scales(const MatrixRows& w, int64_t begin, int64_t rows, float* out) {
  if (w.scales == nullptr) return;
  const int64_t blocks = fp8_blocks(w.k);
  for (int64_t r = 0; r < rows; ++r, out += blocks) {
    const int64_t row =
        w.format == WeightFormat::kFp8Block128 ? (begin + r) / kFp8Block : begin + r;
    const std::byte* from = w.scales + row * w.scale_row_bytes;
    int64_t i = 0;
    if (w.scale_dtype == DType::kF16)
      for (; i + kLanes <= blocks; i += kLanes)
        hn::StoreU(hn::PromoteTo(D(), hn::LoadU(hn::Rebind<hwy::float16_t, D>(),
                                                reinterpret_cast<const hwy::float16_t*>(from) + i)),
                   D(), out + i);
    for (; i < blocks; ++i) out[i] = load_float(from, w.scale_dtype, i);
  }
}

template <class Reader, int kX>
HWY_NOINLINE void direct_tile(const DotArgs& args, int64_t row, int64_t r) {
  const int64_t blocks = fp8_blocks(args.w.k);
  const auto reader = [&](int64_t j) {  // past the last row: that row again, its result dropped
    const int64_t at = HWY_MIN(row + j, args.end - 1);
    return Reader(args.w, at, args.scratch.scales + (at - row) * blocks);
  };
  Reader w[kW] = {reader(0), reader(1), reader(2), reader(3)};
  dot_tile<Reader, kX>(w, args.x + r, 0, args.w.k, 0,
                       {.out = args.out + r * args.out_stride + row - args.begin,
                        .out_stride = args.out_stride,
                        .outputs = HWY_MIN(args.end - row, int64_t{kW})});
}

template <class Reader>
void dot_direct(const DotArgs& args) {
  for (int64_t first = 0; first < args.m; first += kDirectBlock) {
    const int64_t stop = HWY_MIN(args.m, first + kDirectBlock);
    for (int64_t row = args.begin; row < args.end; row += kW) {
      load_scales(args.w, row, HWY_MIN(args.end - row, int64_t{kW}), args.scratch.scales);
      int64_t r = first;
      for (; r + kMaxX <= stop; r += kMaxX) direct_tile<Reader, kMaxX>(args, row, r);
      if constexpr (kMaxX == 4) {
        if (stop - r == 3) direct_tile<Reader, 3>(args, row, r);
        if (stop - r == 2) direct_tile<Reader, 2>(args, row, r);
      }
      if (kMaxX > 1 && stop - r == 1) direct_tile<Reader, 1>(args, row, r);
    }
  }
}

// Many inputs: dot products against a decoded tile, sums carried from one stretch of k to the next.
template <int kX>
HWY_NOINLINE void tile_times_inputs(const DotArgs& args, int64_t row, int64_t rows, int64_t r,
                                    int64_t first_r, int64_t k_begin, int64_t k_end) {
  const DotScratch& s = args.scratch;
  for (int64_t j = 0; j < rows; j += kW) {
    const MatrixRows tile{.format = WeightFormat::kF32,
                          .k = k_end - k_begin,
                          .values = reinterpret_cast<const std::byte*>(s.tile),
                          .row_bytes = DotScratch::kTileInputs * 4};
    const auto reader = [&](int64_t i) { return PlainReader<float>(tile, j + i, nullptr); };
    PlainReader<float> w[kW] = {reader(0), reader(1), reader(2), reader(3)};
    dot_tile<PlainReader<float>, kX>(
        w, args.x + r, 0, padded_inputs(k_end - k_begin), k_begin,
        {.resume = s.partials + ((r - first_r) * DotScratch::kTileRows + j) * kLanes,
         .resume_stride = DotScratch::kTileRows * kLanes,
         .first = k_begin == 0,
         .last = k_end == args.w.k,
         .out = args.out + r * args.out_stride + row + j - args.begin,
         .out_stride = args.out_stride,
         .outputs = HWY_MIN(rows - j, int64_t{kW})});
  }
}

template <class Reader>
void dot_tiled(const DotArgs& args) {
  const DotScratch& s = args.scratch;
  const int64_t k = args.w.k, blocks = fp8_blocks(k);
  for (int64_t first = 0; first < args.m; first += DotScratch::kInputRows) {
    const int64_t stop = HWY_MIN(args.m, first + DotScratch::kInputRows);
    for (int64_t row = args.begin; row < args.end; row += DotScratch::kTileRows) {
      const int64_t rows = HWY_MIN(args.end - row, DotScratch::kTileRows);
      load_scales(args.w, row, rows, s.scales);
      for (int64_t k_begin = 0; k_begin < k; k_begin += DotScratch::kTileInputs) {
        const int64_t k_end = HWY_MIN(k, k_begin + DotScratch::kTileInputs);
        for (int64_t j = 0; j < rows; ++j)
          decode_inputs(Reader(args.w, row + j, s.scales + j * blocks), k_begin, k_end,
                        s.tile + j * DotScratch::kTileInputs);
        int64_t r = first;
        for (; r + kMaxX <= stop; r += kMaxX)
          tile_times_inputs<kMaxX>(args, row, rows, r, first, k_begin, k_end);
        for (; kMaxX > 1 && r < stop; ++r)
          tile_times_inputs<1>(args, row, rows, r, first, k_begin, k_end);
      }
    }
  }
}

template <class Reader>
void dot_format(const DotArgs& args) {
  if constexpr (Reader::kMostDirect != kAlways)
    if (args.m > Reader::kMostDirect) return dot_tiled<Reader>(args);
  dot_direct<Reader>(args);
}

void dot_rows(const DotArgs& args) {
  switch (args.w.format) {
    case WeightFormat::kF32:
      return dot_format<PlainReader<float>>(args);
    case WeightFormat::kF16:
      return dot_format<PlainReader<hwy::float16_t>>(args);
    case WeightFormat::kBF16:
      return dot_format<PlainReader<hwy::bfloat16_t>>(args);
    case WeightFormat::kFp8Block128:
      return dot_format<Fp8Reader>(args);
    case WeightFormat::kInt4Group128:
      return dot_format<Int4Reader>(args);
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
  MatrixRows rows{.format = w.format,
                  .k = w.k,
                  .values = w.values[index].data(),
                  .row_bytes = w.values.stride(1) * dtype_bytes(w.values.dtype())};
  if (w.scales.defined()) {
    rows.scales = w.scales[index].data();
    rows.scale_dtype = w.scales.dtype();
    rows.scale_row_bytes = w.scales.stride(1) * dtype_bytes(w.scales.dtype());
  }
  if (w.zeros.defined()) {
    rows.zeros = w.zeros[index].data_as<uint8_t>();
    rows.zero_row_bytes = w.zeros.stride(1);
  }
  return rows;
}

}  // namespace pewter
#endif
