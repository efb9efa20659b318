#include "backend/cpu/peak_loops.h"

#if defined(__x86_64__)
#include <immintrin.h>
#elif defined(__aarch64__)
#include <arm_neon.h>
#include <asm/hwcap.h>
#include <sys/auxv.h>
#endif

namespace pewter {
namespace {

// ---- Reading. Four registers take turns, so that no load waits for an exclusive-or.

uint64_t read_words(const std::byte* from, int64_t bytes) {
  uint64_t a = 0, b = 0, c = 0, d = 0;
  const auto* words = reinterpret_cast<const uint64_t*>(from);
  for (int64_t i = 0; i < bytes / 8; i += 4) {
    a ^= words[i];
    b ^= words[i + 1];
    c ^= words[i + 2];
    d ^= words[i + 3];
  }
  return a ^ b ^ c ^ d;
}

#if defined(__x86_64__)

__attribute__((target("avx512f"))) uint64_t read_avx512(const std::byte* from, int64_t bytes) {
  __m512i a = _mm512_setzero_si512(), b = a, c = a, d = a;
  for (int64_t i = 0; i < bytes; i += 256) {
    a = _mm512_xor_si512(a, _mm512_load_si512(from + i));
    b = _mm512_xor_si512(b, _mm512_load_si512(from + i + 64));
    c = _mm512_xor_si512(c, _mm512_load_si512(from + i + 128));
    d = _mm512_xor_si512(d, _mm512_load_si512(from + i + 192));
  }
  alignas(64) uint64_t lanes[8];
  _mm512_store_si512(lanes, _mm512_xor_si512(_mm512_xor_si512(a, b), _mm512_xor_si512(c, d)));
  return read_words(reinterpret_cast<const std::byte*>(lanes), sizeof(lanes));
}

__attribute__((target("avx2"))) uint64_t read_avx2(const std::byte* from, int64_t bytes) {
  const auto* at = reinterpret_cast<const __m256i*>(from);
  __m256i a = _mm256_setzero_si256(), b = a, c = a, d = a;
  for (int64_t i = 0; i < bytes / 32; i += 4) {
    a = _mm256_xor_si256(a, _mm256_load_si256(at + i));
    b = _mm256_xor_si256(b, _mm256_load_si256(at + i + 1));
    c = _mm256_xor_si256(c, _mm256_load_si256(at + i + 2));
    d = _mm256_xor_si256(d, _mm256_load_si256(at + i + 3));
  }
  alignas(32) uint64_t lanes[4];
  _mm256_store_si256(reinterpret_cast<__m256i*>(lanes),
                     _mm256_xor_si256(_mm256_xor_si256(a, b), _mm256_xor_si256(c, d)));
  return read_words(reinterpret_cast<const std::byte*>(lanes), sizeof(lanes));
}

#elif defined(__aarch64__)

uint64_t read_neon(const std::byte* from, int64_t bytes) {
  const auto* words = reinterpret_cast<const uint64_t*>(from);
  uint64x2_t a = vdupq_n_u64(0), b = a, c = a, d = a;
  for (int64_t i = 0; i < bytes / 8; i += 8) {
    a = veorq_u64(a, vld1q_u64(words + i));
    b = veorq_u64(b, vld1q_u64(words + i + 2));
    c = veorq_u64(c, vld1q_u64(words + i + 4));
    d = veorq_u64(d, vld1q_u64(words + i + 6));
  }
  const uint64x2_t all = veorq_u64(veorq_u64(a, b), veorq_u64(c, d));
  return vgetq_lane_u64(all, 0) ^ vgetq_lane_u64(all, 1);
}

#endif

// ---- Multiplying and adding. A step is one instruction on each of twelve registers, more than any
// machine's latency times its units. In assembly, because a compiler moves registers around between
// them, and what is left of the ceiling then depends on its version. All operands are zero.

constexpr int kChains = 12;

// Operations of one step: lanes × 2 × terms of a lane's sum, in every chain.
constexpr double operations(int lanes, int terms) { return 2.0 * lanes * terms * kChains; }

#define PEWTER_CHAINS(before, after)                                                           \
  before "0" after "\n\t" before "1" after "\n\t" before "2" after "\n\t" before "3" after     \
         "\n\t" before "4" after "\n\t" before "5" after "\n\t" before "6" after "\n\t" before \
         "7" after "\n\t" before "8" after "\n\t" before "9" after "\n\t" before "10" after    \
         "\n\t" before "11" after "\n\t"
#define PEWTER_PEAK_LOOP(name, before, after)                                    \
  void name(int64_t steps) {                                                     \
    asm volatile(PEWTER_START "1:\n\t" PEWTER_CHAINS(before, after) PEWTER_COUNT \
                 : "+r"(steps)                                                   \
                 :                                                               \
                 : "cc", PEWTER_REGISTERS);                                      \
  }

#if defined(__x86_64__)

// Clearing the lowest 128 bits clears the whole register.
#define PEWTER_START \
  "vpxor %%xmm15, %%xmm15, %%xmm15\n\t" PEWTER_CHAINS("vpxor %%xmm15, %%xmm15, %%xmm", "")
#define PEWTER_COUNT "dec %0\n\tjnz 1b\n\tvzeroupper"
#define PEWTER_REGISTERS                                                                   \
  "xmm0", "xmm1", "xmm2", "xmm3", "xmm4", "xmm5", "xmm6", "xmm7", "xmm8", "xmm9", "xmm10", \
      "xmm11", "xmm15"

PEWTER_PEAK_LOOP(int8_512, "vpdpbusd %%zmm15, %%zmm15, %%zmm", "")
PEWTER_PEAK_LOOP(int8_256, "%{vex%} vpdpbusd %%ymm15, %%ymm15, %%ymm", "")
PEWTER_PEAK_LOOP(bf16_512, "vdpbf16ps %%zmm15, %%zmm15, %%zmm", "")
PEWTER_PEAK_LOOP(f32_512, "vfmadd231ps %%zmm15, %%zmm15, %%zmm", "")
PEWTER_PEAK_LOOP(f32_256, "vfmadd231ps %%ymm15, %%ymm15, %%ymm", "")

#elif defined(__aarch64__)

#define PEWTER_START                                                            \
  ".arch_extension dotprod\n\t.arch_extension i8mm\n\t.arch_extension bf16\n\t" \
  "movi v15.16b, #0\n\t" PEWTER_CHAINS("movi v", ".16b, #0")
#define PEWTER_COUNT "subs %0, %0, #1\n\tb.ne 1b"
#define PEWTER_REGISTERS \
  "v0", "v1", "v2", "v3", "v4", "v5", "v6", "v7", "v8", "v9", "v10", "v11", "v15"

PEWTER_PEAK_LOOP(int8_dot, "sdot v", ".4s, v15.16b, v15.16b")
PEWTER_PEAK_LOOP(int8_matrix, "smmla v", ".4s, v15.16b, v15.16b")
PEWTER_PEAK_LOOP(bf16_dot, "bfdot v", ".4s, v15.8h, v15.8h")
PEWTER_PEAK_LOOP(bf16_matrix, "bfmmla v", ".4s, v15.8h, v15.8h")
PEWTER_PEAK_LOOP(f32_neon, "fmla v", ".4s, v15.4s, v15.4s")

#endif

// Where no vector multiply-add is known.
void f32_scalar(int64_t steps) {
  float a = 0, b = 0, c = 0, d = 0, factor = 1e-3f;
  for (int64_t i = 0; i < steps * kChains / 4; ++i) {
    a += factor * factor;
    b += factor * factor;
    c += factor * factor;
    d += factor * factor;
    asm volatile("" : "+m"(factor));
  }
  factor = a + b + c + d;
  asm volatile("" : "+m"(factor));
}

std::vector<PeakLoop> scalar_loops() {
  return {{f32_scalar, operations(1, 1), "f32, one at a time", false}};
}

}  // namespace

#if defined(__x86_64__)

ReadLoop read_loop() {
  if (__builtin_cpu_supports("avx512f")) return read_avx512;
  if (__builtin_cpu_supports("avx2")) return read_avx2;
  return read_words;
}

std::vector<PeakLoop> peak_loops(Arithmetic kind) {
  const bool avx512 = __builtin_cpu_supports("avx512f");
  if (kind == Arithmetic::kInt8Dot && avx512 && __builtin_cpu_supports("avx512vnni"))
    return {{int8_512, operations(16, 4), "vpdpbusd, 512 bits", true}};
  if (kind == Arithmetic::kInt8Dot && __builtin_cpu_supports("avxvnni"))
    return {{int8_256, operations(8, 4), "vpdpbusd, 256 bits", true}};
  if (kind == Arithmetic::kBF16Dot && avx512 && __builtin_cpu_supports("avx512bf16"))
    return {{bf16_512, operations(16, 2), "vdpbf16ps, 512 bits", true}};
  if (avx512) return {{f32_512, operations(16, 1), "f32 fma, 512 bits", false}};
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"))
    return {{f32_256, operations(8, 1), "f32 fma, 256 bits", false}};
  return scalar_loops();
}

#elif defined(__aarch64__)

ReadLoop read_loop() { return read_neon; }

std::vector<PeakLoop> peak_loops(Arithmetic kind) {
  const unsigned long first = ::getauxval(AT_HWCAP), second = ::getauxval(AT_HWCAP2);
  std::vector<PeakLoop> loops;
  if (kind == Arithmetic::kInt8Dot && (first & HWCAP_ASIMDDP) != 0)
    loops.push_back({int8_dot, operations(4, 4), "sdot", true});
  if (kind == Arithmetic::kInt8Dot && (second & HWCAP2_I8MM) != 0)
    loops.push_back({int8_matrix, operations(4, 8), "smmla", true});
  if (kind == Arithmetic::kBF16Dot && (second & HWCAP2_BF16) != 0) {
    loops.push_back({bf16_dot, operations(4, 2), "bfdot", true});
    loops.push_back({bf16_matrix, operations(4, 4), "bfmmla", true});
  }
  if (loops.empty()) loops.push_back({f32_neon, operations(4, 1), "f32 fmla", false});
  return loops;
}

#else

ReadLoop read_loop() { return read_words; }
std::vector<PeakLoop> peak_loops(Arithmetic) { return scalar_loops(); }

#endif

}  // namespace pewter
