#include "backend/cpu/features.h"

#if defined(__aarch64__)
#include <sys/auxv.h>
#elif defined(__x86_64__)
#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>
#endif

namespace pewter {
namespace {

#if defined(__x86_64__)
// The matrix unit's registers are saved for those alone who ask; the kernel may say no.
bool may_use_amx_int8() {
  constexpr unsigned kTile = 1u << 24, kInt8 = 1u << 25;  // cpuid 7, edx
  constexpr long kRequestPermission = 0x1023, kTileData = 18;
  unsigned a = 0, b = 0, c = 0, d = 0;
  if (__get_cpuid_count(7, 0, &a, &b, &c, &d) == 0) return false;
  if ((d & kTile) == 0 || (d & kInt8) == 0) return false;
  return ::syscall(SYS_arch_prctl, kRequestPermission, kTileData) == 0;
}
#endif

CpuFeatures& features() {
  static CpuFeatures used = [] {
    CpuFeatures f = detect_cpu_features();
#if defined(__x86_64__)
    f.avx512_bf16 = f.avx512_bf16 && __builtin_cpu_is("amd");
#endif
    return f;
  }();
  return used;
}

}  // namespace

CpuFeatures detect_cpu_features() {
  CpuFeatures f;
#if defined(__x86_64__)
  __builtin_cpu_init();
  const bool avx512 = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                      __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
  f.avx512_vnni = avx512 && __builtin_cpu_supports("avx512vnni");
  f.amx_int8 = f.avx512_vnni && may_use_amx_int8();
  f.avx512_bf16 = avx512 && __builtin_cpu_supports("avx512bf16");
#elif defined(__aarch64__)
  // Bits of the kernel's interface (asm/hwcap.h), spelled out because older headers lack them.
  const unsigned long caps = getauxval(AT_HWCAP), caps2 = getauxval(AT_HWCAP2);
  f.neon_dotprod = (caps >> 20 & 1) != 0;
  f.neon_i8mm = (caps2 >> 13 & 1) != 0;
  f.neon_bf16 = (caps2 >> 14 & 1) != 0;
#endif
  return f;
}

const CpuFeatures& cpu_features() { return features(); }
void set_cpu_features_for_test(const CpuFeatures& f) { features() = f; }

}  // namespace pewter
