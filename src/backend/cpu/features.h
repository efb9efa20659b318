// What this processor can multiply, beyond the vectors of simd.h: dot products of small numbers.
// Asked once; tests take some away to run the kernels of lesser machines.
#pragma once

namespace pewter {

struct CpuFeatures {
  bool avx512_vnni = false;  // u8 · s8 into s32, 512 bits wide
  // bf16 · bf16 into f32 as fast as one f32 multiply-add a cycle or faster. Intel's cores take
  // two cycles for 32 products, where f32 arithmetic makes 32 in one: there it counts as absent.
  bool avx512_bf16 = false;
  bool neon_dotprod = false, neon_i8mm = false, neon_bf16 = false;
};

// Of the machine.
CpuFeatures detect_cpu_features();

const CpuFeatures& cpu_features();
void set_cpu_features_for_test(const CpuFeatures& features);

}  // namespace pewter
