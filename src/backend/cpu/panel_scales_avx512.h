// What the kernels of panel_avx512.cc and panel_amx.cc share. Compiled for no more than it needs,
// so that regions with more instructions may inline it.
#pragma once

#if defined(__x86_64__)

#include <hwy/base.h>
#include <immintrin.h>

#include <cstddef>

#include "tensor/dtype.h"

HWY_PUSH_ATTRIBUTES("avx2,f16c,avx512f")
namespace pewter {

// The scales of a panel's 16 outputs as f32.
__attribute__((always_inline)) inline __m512 load_scales(const std::byte* at, DType dtype) {
  if (dtype == DType::kF16)
    return _mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(at)));
  if (dtype == DType::kBF16)
    return _mm512_castsi512_ps(_mm512_slli_epi32(
        _mm512_cvtepu16_epi32(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(at))), 16));
  return _mm512_loadu_ps(at);
}

}  // namespace pewter
HWY_POP_ATTRIBUTES

#endif
