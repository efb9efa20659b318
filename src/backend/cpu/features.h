// What this processor can multiply, beyond the vectors of simd.h: dot products of small numbers.
// Asked once; tests choose among what there is, to run the kernels of other machines.
#pragma once

namespace pewter {

struct CpuFeatures {
  bool avx512_vnni = false;  // u8 · s8 into s32, 512 bits wide
  bool avx512_bf16 = false;  // bf16 · bf16 into f32
  bool amx_int8 = false;     // tiles of s8 · u8 into s32
  bool neon_dotprod = false, neon_i8mm = false, neon_bf16 = false;
};

// What there is.
CpuFeatures detect_cpu_features();

// What is used: all of it, but that Intel's cores take two cycles for the 32 products of a bf16 dot
// instruction, where f32 multiply-adds make 32 in one.
const CpuFeatures& cpu_features();
void set_cpu_features_for_test(const CpuFeatures& features);

}  // namespace pewter
