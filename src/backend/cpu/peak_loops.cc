// Every loop keeps twelve accumulators in registers: more than any machine's latency times its
// units. The empty asm statements keep the compiler from computing the result in advance.
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

constexpr int kChains = 12;

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

// Where no vector multiply-add is known: scalar ones, which the compiler may join into vectors.
void scalar_f32(int64_t steps) {
  float sums[kChains] = {};
  float a = 1e-3f;
  for (int64_t i = 0; i < steps; ++i) {
    for (float& sum : sums) sum += a * a;
    asm volatile("" : "+m"(a));
  }
  asm volatile("" : : "r"(sums) : "memory");
}
[[maybe_unused]] constexpr PeakLoop kScalar{scalar_f32, 2.0 * kChains, "f32 mul, add", false};

// A body of `chains` accumulators of `Vector`, each stepped by `call(x, a, b)`. A macro, because
// the target attribute must be on the function that holds the intrinsics.
#define PEWTER_PEAK_LOOP(name, target_text, Vector, zero, one, call)           \
  __attribute__((target(target_text))) void name(int64_t steps) {              \
    Vector x[kChains];                                                         \
    auto a = one, b = one;                                                     \
    for (Vector & y : x) y = zero;                                             \
    for (int64_t i = 0; i < steps; ++i) {                                      \
      PEWTER_UNROLL for (int k = 0; k < kChains; ++k) x[k] = call(x[k], a, b); \
      asm volatile("" : PEWTER_REGISTER(a), PEWTER_REGISTER(b));               \
    }                                                                          \
    for (Vector & y : x) asm volatile("" : PEWTER_REGISTER(y));                \
  }
#define PEWTER_UNROLL _Pragma("GCC unroll 12")

#if defined(__x86_64__)

#define PEWTER_REGISTER(value) "+v"(value)

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

#define PEWTER_FMA(x, a, b) _mm512_fmadd_ps(a, b, x)
#define PEWTER_FMA2(x, a, b) _mm256_fmadd_ps(a, b, x)
PEWTER_PEAK_LOOP(int8_avx512, "avx512f,avx512vnni", __m512i, _mm512_setzero_si512(),
                 _mm512_set1_epi8(3), _mm512_dpbusd_epi32)
PEWTER_PEAK_LOOP(int8_avx, "avx2,avxvnni", __m256i, _mm256_setzero_si256(), _mm256_set1_epi8(3),
                 _mm256_dpbusd_avx_epi32)
PEWTER_PEAK_LOOP(f32_avx512, "avx512f", __m512, _mm512_setzero_ps(), _mm512_set1_ps(1e-3f),
                 PEWTER_FMA)
PEWTER_PEAK_LOOP(f32_avx2, "avx2,fma", __m256, _mm256_setzero_ps(), _mm256_set1_ps(1e-3f),
                 PEWTER_FMA2)

__attribute__((target("avx512f,avx512bf16"))) void bf16_avx512(int64_t steps) {
  __m512 x[kChains];
  __m512i a = _mm512_set1_epi32(0x3c003c00), b = a;  // 2^-7 twice
  for (__m512& y : x) y = _mm512_setzero_ps();
  for (int64_t i = 0; i < steps; ++i) {
    PEWTER_UNROLL for (int k = 0; k < kChains; ++k) {
      x[k] = _mm512_dpbf16_ps(x[k], reinterpret_cast<__m512bh>(a), reinterpret_cast<__m512bh>(b));
    }
    asm volatile("" : PEWTER_REGISTER(a), PEWTER_REGISTER(b));
  }
  for (__m512& y : x) asm volatile("" : PEWTER_REGISTER(y));
}

#elif defined(__aarch64__)

#define PEWTER_REGISTER(value) "+w"(value)

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

PEWTER_PEAK_LOOP(int8_dot, "arch=armv8.2-a+dotprod", int32x4_t, vdupq_n_s32(0), vdupq_n_s8(3),
                 vdotq_s32)
PEWTER_PEAK_LOOP(int8_mmla, "arch=armv8.2-a+i8mm", int32x4_t, vdupq_n_s32(0), vdupq_n_s8(3),
                 vmmlaq_s32)
PEWTER_PEAK_LOOP(bf16_dot, "arch=armv8.2-a+bf16", float32x4_t, vdupq_n_f32(0),
                 vreinterpretq_bf16_u16(vdupq_n_u16(0x3c00)), vbfdotq_f32)
PEWTER_PEAK_LOOP(bf16_mmla, "arch=armv8.2-a+bf16", float32x4_t, vdupq_n_f32(0),
                 vreinterpretq_bf16_u16(vdupq_n_u16(0x3c00)), vbfmmlaq_f32)
PEWTER_PEAK_LOOP(f32_neon, "arch=armv8-a", float32x4_t, vdupq_n_f32(0), vdupq_n_f32(1e-3f),
                 vfmaq_f32)

#endif

// Operations of one step: lanes × 2 × terms of a lane's sum, in every chain.
constexpr double operations(int lanes, int terms) { return 2.0 * lanes * terms * kChains; }

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
    return {{int8_avx512, operations(16, 4), "vpdpbusd, 512 bits", true}};
  if (kind == Arithmetic::kInt8Dot && __builtin_cpu_supports("avxvnni"))
    return {{int8_avx, operations(8, 4), "vpdpbusd, 256 bits", true}};
  if (kind == Arithmetic::kBF16Dot && avx512 && __builtin_cpu_supports("avx512bf16"))
    return {{bf16_avx512, operations(16, 2), "vdpbf16ps, 512 bits", true}};
  if (avx512) return {{f32_avx512, operations(16, 1), "f32 fma, 512 bits", false}};
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"))
    return {{f32_avx2, operations(8, 1), "f32 fma, 256 bits", false}};
  return {kScalar};
}

#elif defined(__aarch64__)

ReadLoop read_loop() { return read_neon; }

std::vector<PeakLoop> peak_loops(Arithmetic kind) {
  const unsigned long first = ::getauxval(AT_HWCAP), second = ::getauxval(AT_HWCAP2);
  std::vector<PeakLoop> loops;
  if (kind == Arithmetic::kInt8Dot && (first & HWCAP_ASIMDDP) != 0)
    loops.push_back({int8_dot, operations(4, 4), "sdot", true});
  if (kind == Arithmetic::kInt8Dot && (second & HWCAP2_I8MM) != 0)
    loops.push_back({int8_mmla, operations(4, 8), "smmla", true});
  if (kind == Arithmetic::kBF16Dot && (second & HWCAP2_BF16) != 0) {
    loops.push_back({bf16_dot, operations(4, 2), "bfdot", true});
    loops.push_back({bf16_mmla, operations(4, 4), "bfmmla", true});
  }
  if (loops.empty()) loops.push_back({f32_neon, operations(4, 1), "f32 fmla", false});
  return loops;
}

#else

ReadLoop read_loop() { return read_words; }
std::vector<PeakLoop> peak_loops(Arithmetic) { return {kScalar}; }

#endif

}  // namespace pewter
