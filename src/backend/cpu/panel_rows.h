// panel_rows: some panels of a matrix (panel.h) times m input rows, what every projection and every
// expert of the fast path goes through.
//
// The order of a sum is part of the contract: each (input row, output) has one accumulator in one
// lane, which walks the inputs from first to last. It depends on k and the format alone, so a
// result has the same bits for every m, however rows and outputs are cut into tiles.
//
// Input rows come in one of three forms, by the matrix's format and what the processor multiplies:
//   floats  f32: bf16 panels by f32 multiply-adds, fp8, and what is canonical (dot.h)
//   halves  bf16, k rounded up to even with a zero: bf16 panels by bf16 dot products
//   codes   int8 and a scale for each 128 inputs: int4 and int8 panels, by exact integer dot
//           products
#pragma once

#include "tensor/weight_matrix.h"

namespace pewter {

enum class InputForm : uint8_t { kFloats, kHalves, kCodes };
InputForm input_form(const WeightMatrix& w);
InputForm panel_input_form(WeightFormat format);

// A row of codes: k int8, filled up to whole groups with zeros, then ⌈k/128⌉ f32 scales, then as
// many int32, −8 · the sum of the group's codes: what symmetric int4 weights start a group's sum
// with. x ≈ code · scale.
constexpr int64_t code_groups(int64_t k) { return (k + 127) / 128; }
constexpr int64_t coded_inputs(int64_t k) { return code_groups(k) * 128; }
constexpr int64_t code_row_bytes(int64_t k) { return coded_inputs(k) + code_groups(k) * 8; }
inline const float* code_scales(const int8_t* row, int64_t k) {
  return reinterpret_cast<const float*>(row + coded_inputs(k));
}
inline const int32_t* code_offsets(const int8_t* row, int64_t k) {
  return reinterpret_cast<const int32_t*>(row + code_groups(k) * 132);
}

// Panels of one matrix, side by side: what kernels see.
struct Panels {
  WeightFormat format = WeightFormat::kBF16;
  int64_t k = 0;
  int64_t first = 0;  // index of the first in its matrix
  const std::byte* values = nullptr;
  int64_t value_stride = 0;  // bytes between panels
  const std::byte* scales = nullptr;
  DType scale_dtype = DType::kF32;
  int64_t scale_stride = 0;        // int4, int8: bytes between panels; fp8: of rows of blocks, from
                                   // the matrix's start
  const uint8_t* zeros = nullptr;  // null: 8
  int64_t zero_stride = 0;
};
// From output `begin` on, a multiple of 16, of matrix `index`.
Panels panels_from(const WeightMatrix& w, int64_t index, int64_t begin);

struct PanelArgs {
  Panels w;
  int64_t count = 0;  // panels
  // [m] rows in the format's form; bf16 panels take halves where they are given, floats otherwise
  const float* const* floats = nullptr;
  const BFloat16* const* halves = nullptr;
  const int8_t* const* codes = nullptr;
  int64_t m = 0;
  float* out = nullptr;  // out[r · out_stride + i], i < 16 · count
  int64_t out_stride = 0;
};
void panel_rows(const PanelArgs& args);

// Asks for the panels of outputs [begin, end) to come into the core's cache: before work on others
// that are too short for the stream of reads to find its pace.
void prefetch_panels(const WeightMatrix& w, int64_t index, int64_t begin, int64_t end);

// Kernels of one instruction set; panel_rows chooses. The portable ones are compiled for each
// target of simd.h.
void panel_rows_bf16(const PanelArgs& args);  // floats
void panel_rows_fp8(const PanelArgs& args);   // floats
void panel_rows_int4(const PanelArgs& args);  // codes
void panel_rows_int8(const PanelArgs& args);  // codes
#if defined(__x86_64__)
void panel_rows_bf16_avx512(const PanelArgs& args);  // halves
void panel_rows_int4_avx512(const PanelArgs& args);  // codes
void panel_rows_int8_avx512(const PanelArgs& args);  // codes
void panel_rows_int4_amx(const PanelArgs& args);     // codes
#elif defined(__aarch64__)
void panel_rows_bf16_neon(const PanelArgs& args);         // halves
void panel_rows_int4_neon(const PanelArgs& args);         // codes, dot products
void panel_rows_int8_neon(const PanelArgs& args);         // codes, dot products
void panel_rows_int4_neon_matrix(const PanelArgs& args);  // codes, 2 × 2 products
#endif

}  // namespace pewter
