#include "backend/cpu/panel_rows.h"

#include "backend/cpu/features.h"
#include "backend/cpu/panel.h"

namespace pewter {
namespace {

#if defined(__x86_64__)
// Rows from which half a tile of the matrix unit is better than the dot products of all.
constexpr int64_t kMatrixRows = 6;
#endif

}  // namespace

InputForm panel_input_form(WeightFormat format) {
  if (format == WeightFormat::kInt4Group128 || format == WeightFormat::kInt8Row)
    return InputForm::kCodes;
  const CpuFeatures& f = cpu_features();
  const bool halves = format == WeightFormat::kBF16 && (f.avx512_bf16 || f.neon_bf16);
  return halves ? InputForm::kHalves : InputForm::kFloats;
}

InputForm input_form(const WeightMatrix& w) {
  return w.layout == kPanelLayout ? panel_input_form(w.format) : InputForm::kFloats;
}

Panels panels_from(const WeightMatrix& w, int64_t index, int64_t begin) {
  DCHECK(index >= 0 && index < w.count && begin % kPanelOutputs == 0 && begin < w.n, "output ",
         begin, " of matrix ", index);
  // Addresses by hand: views of views would cost as much as a short panel's arithmetic.
  const int64_t first = begin / kPanelOutputs, stride = w.values.stride(1);
  Panels p{.format = w.format,
           .k = w.k,
           .first = first,
           .values = w.values.data() + index * w.values.stride(0) + first * stride,
           .value_stride = stride};
  if (!w.scales.defined()) return p;
  p.scale_dtype = w.scales.dtype();
  const int64_t size = dtype_bytes(p.scale_dtype);
  p.scale_stride = w.scales.stride(1) * size;
  p.scales = w.scales.data() + index * w.scales.stride(0) * size;
  if (w.format == WeightFormat::kFp8Block128) return p;
  p.scales += first * p.scale_stride;
  if (!w.zeros.defined()) return p;
  p.zero_stride = w.zeros.stride(1);
  p.zeros = reinterpret_cast<const uint8_t*>(w.zeros.data()) + index * w.zeros.stride(0) +
            first * p.zero_stride;
  return p;
}

void prefetch_panels(const WeightMatrix& w, int64_t index, int64_t begin, int64_t end) {
  constexpr int64_t kLine = 64;
  const Panels p = panels_from(w, index, begin);
  const auto ask = [](const std::byte* from, int64_t bytes) {
    for (int64_t i = 0; i < bytes; i += kLine) __builtin_prefetch(from + i, 0, 2);
  };
  ask(p.values, panels_of(end - begin) * p.value_stride);
  if (w.format == WeightFormat::kInt4Group128)
    ask(p.scales, panels_of(end - begin) * p.scale_stride);
}

void panel_rows(const PanelArgs& args) {
  const CpuFeatures& f = cpu_features();
  switch (args.w.format) {
    case WeightFormat::kInt4Group128:
#if defined(__x86_64__)
      if (f.amx_int8 && args.m >= kMatrixRows) return panel_rows_int4_amx(args);
      if (f.avx512_vnni) return panel_rows_int4_avx512(args);
#elif defined(__aarch64__)
      if (f.neon_i8mm && args.m > 1) return panel_rows_int4_neon_matrix(args);
      if (f.neon_dotprod) return panel_rows_int4_neon(args);
#endif
      return panel_rows_int4(args);
    case WeightFormat::kInt8Row:
#if defined(__x86_64__)
      if (f.avx512_vnni) return panel_rows_int8_avx512(args);
#elif defined(__aarch64__)
      if (f.neon_dotprod) return panel_rows_int8_neon(args);
#endif
      return panel_rows_int8(args);
    case WeightFormat::kFp8Block128:
      return panel_rows_fp8(args);
    default:
#if defined(__x86_64__)
      if (args.halves != nullptr) return panel_rows_bf16_avx512(args);
#elif defined(__aarch64__)
      if (args.halves != nullptr) return panel_rows_bf16_neon(args);
#endif
      return panel_rows_bf16(args);
  }
}

}  // namespace pewter
