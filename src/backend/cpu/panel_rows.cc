#include "backend/cpu/panel_rows.h"

#include "backend/cpu/features.h"
#include "backend/cpu/panel.h"

namespace pewter {

InputForm input_form(const WeightMatrix& w) {
  if (w.layout != kPanelLayout) return InputForm::kFloats;
  if (w.format == WeightFormat::kInt4Group128) return InputForm::kCodes;
  const CpuFeatures& f = cpu_features();
  const bool halves = w.format == WeightFormat::kBF16 && (f.avx512_bf16 || f.neon_bf16);
  return halves ? InputForm::kHalves : InputForm::kFloats;
}

Panels::Panels(const PanelArgs& args) : k(args.w->k) {
  const WeightMatrix& w = *args.w;
  DCHECK(
      args.index >= 0 && args.index < w.count && args.begin % kPanelOutputs == 0 && args.end <= w.n,
      "outputs ", args.begin, " … ", args.end, " of matrix ", args.index);
  const int64_t panel = args.begin / kPanelOutputs;
  values = w.values[args.index][panel].data();
  value_stride = w.values.stride(1);
  if (!w.scales.defined()) return;
  scale_dtype = w.scales.dtype();
  scale_stride = w.scales.stride(1) * dtype_bytes(scale_dtype);
  const bool blocks = w.format == WeightFormat::kFp8Block128;  // from the matrix's start
  scales = w.scales[args.index].data() + (blocks ? 0 : panel * scale_stride);
  if (!w.zeros.defined()) return;
  zeros = w.zeros[args.index][panel].data_as<uint8_t>();
  zero_stride = w.zeros.stride(1);
}

void panel_rows(const PanelArgs& args) {
  const CpuFeatures& f = cpu_features();
  switch (args.w->format) {
    case WeightFormat::kInt4Group128:
#if defined(__x86_64__)
      if (f.avx512_vnni) return panel_rows_int4_avx512(args);
#elif defined(__aarch64__)
      if (f.neon_i8mm && args.m > 1) return panel_rows_int4_neon_matrix(args);
      if (f.neon_dotprod) return panel_rows_int4_neon(args);
#endif
      return panel_rows_int4(args);
    case WeightFormat::kFp8Block128:
      return panel_rows_fp8(args);
    default:
#if defined(__x86_64__)
      if (f.avx512_bf16) return panel_rows_bf16_avx512(args);
#elif defined(__aarch64__)
      if (f.neon_bf16) return panel_rows_bf16_neon(args);
#endif
      return panel_rows_bf16(args);
  }
}

}  // namespace pewter
