// The instructions that kernels name themselves, in asm statements: translate.py makes each a call
// of the function here, whose name is the instruction's.
#pragma once

#include <atomic>
#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>

#include "emulator/device.h"
#include "emulator/intrinsics.h"

namespace emulator::ptx {

inline void mov_u32_tid_x(int& to) { to = static_cast<int>(lane->thread.x); }
inline void prmt_b32(uint32_t& to, uint32_t low, uint32_t high, uint32_t selector) {
  to = __byte_perm(low, high, selector);
}
inline float flushed(float x) {  // subnormal numbers are zero
  return std::fpclassify(x) == FP_SUBNORMAL ? std::copysign(0.0f, x) : x;
}
inline void ex2_approx_ftz_f32(float& to, float x) { to = flushed(std::exp2(flushed(x))); }
inline void rsqrt_approx_ftz_f32(float& to, float x) { to = 1.0f / std::sqrt(flushed(x)); }

inline void griddepcontrol_wait() { wait_for_inputs(); }
inline void griddepcontrol_launch_dependents() { start_next(); }

inline void bar_sync(int barrier, int threads) { sync_named(barrier, threads); }
inline void bar_arrive(int barrier, int threads) { arrive_named(barrier, threads); }

// Shared memory.
template <typename T>
void load_shared(uint32_t at, T* values, int count) {
  const size_t bytes = sizeof(T) * static_cast<size_t>(count);
  if (at % bytes != 0) fail("a load from shared memory is not aligned");
  std::memcpy(values, shared_at(at, bytes), bytes);
}
inline void ld_shared_u16(uint16_t& v, uint32_t at) { load_shared(at, &v, 1); }
inline void ld_shared_u32(uint32_t& v, uint32_t at) { load_shared(at, &v, 1); }
template <typename A, typename B>
void ld_shared_v2_u32(A& x, B& y, uint32_t at) {
  uint32_t v[2];
  load_shared(at, v, 2);
  x = static_cast<A>(v[0]), y = static_cast<B>(v[1]);
}
inline void ld_shared_v4_u32(uint32_t& x, uint32_t& y, uint32_t& z, uint32_t& w, uint32_t at) {
  uint32_t v[4];
  load_shared(at, v, 4);
  x = v[0], y = v[1], z = v[2], w = v[3];
}
inline void st_shared_u32(uint32_t at, uint32_t v) {
  if (at % 4 != 0) fail("a store to shared memory is not aligned");
  std::memcpy(shared_at(at, 4), &v, 4);
}

// Words of memory that others write meanwhile.
template <typename T>
T look_at(const T* at, std::memory_order order) {
  wait_for_others();
  const T seen = std::atomic_ref<T>(*const_cast<T*>(at)).load(order);
  let_others_run();
  return seen;
}
inline void ld_relaxed_gpu_global_u32(uint32_t& v, const uint32_t* at) {
  v = look_at(at, std::memory_order_relaxed);
}
inline void ld_relaxed_gpu_global_u64(uint64_t& v, const uint64_t* at) {
  v = look_at(at, std::memory_order_relaxed);
}
inline void ld_acquire_gpu_global_u32(uint32_t& v, const uint32_t* at) {
  v = look_at(at, std::memory_order_acquire);
}
inline void ld_acquire_gpu_global_s32(int32_t& v, const int32_t* at) {
  v = look_at(at, std::memory_order_acquire);
}
inline void ld_relaxed_gpu_global_v4_u32(uint32_t& x, uint32_t& y, uint32_t& z, uint32_t& w,
                                         const uint32_t* at) {
  if (reinterpret_cast<uintptr_t>(at) % 16 != 0) fail("a load of 16 bytes is not aligned");
  ld_relaxed_gpu_global_u32(x, at);
  ld_relaxed_gpu_global_u32(y, at + 1);
  ld_relaxed_gpu_global_u32(z, at + 2);
  ld_relaxed_gpu_global_u32(w, at + 3);
}
template <typename T>
void tell(T* at, T value, std::memory_order order) {
  let_others_run();
  std::atomic_ref<T>(*at).store(value, order);
  wrote_for_others();
}
inline void st_relaxed_gpu_global_u32(uint32_t* at, uint32_t v) {
  tell(at, v, std::memory_order_relaxed);
}
inline void st_relaxed_gpu_global_u64(uint64_t* at, uint64_t v) {
  tell(at, v, std::memory_order_relaxed);
}
inline void st_release_gpu_global_u32(uint32_t* at, uint32_t v) {
  tell(at, v, std::memory_order_release);
}
inline void red_release_gpu_global_add_s32(int32_t* at, int32_t add) { atomicAdd(at, add); }

// Copies into shared memory.
inline void createpolicy_fractional_L2_evict_first_b64(uint64_t& policy, double) { policy = 0; }
inline void cp_async_bulk_prefetch_L2_global(const void* from, int bytes) {
  if (reinterpret_cast<uintptr_t>(from) % 16 != 0 || bytes % 16 != 0)
    fail("a prefetch is not of multiples of 16 bytes");
}
inline void copy_bulk(uint32_t to, const void* from, int bytes, uint32_t barrier) {
  if (to % 16 != 0 || reinterpret_cast<uintptr_t>(from) % 16 != 0 || bytes % 16 != 0 || bytes <= 0)
    fail("a bulk copy is not of multiples of 16 bytes");
  copy_later(to, from, bytes, bytes, barrier);
}
inline void cp_async_bulk_shared_cluster_global_mbarrier_complete_tx_bytes(uint32_t to,
                                                                           const void* from,
                                                                           int bytes,
                                                                           uint32_t barrier) {
  copy_bulk(to, from, bytes, barrier);
}
inline void cp_async_bulk_shared_cluster_global_mbarrier_complete_tx_bytes_L2_cache_hint(
    uint32_t to, const void* from, int bytes, uint32_t barrier, uint64_t) {
  copy_bulk(to, from, bytes, barrier);
}
inline void copy_few(uint32_t to, const void* from, int bytes, int wanted) {
  const auto size = static_cast<uint32_t>(bytes);
  if (to % size != 0 || reinterpret_cast<uintptr_t>(from) % size != 0)
    fail("an asynchronous copy is not aligned");
  copy_later(to, from, bytes, wanted, kNoBarrier);
}
inline void cp_async_ca_shared_global(uint32_t to, const void* from, int bytes) {
  copy_few(to, from, bytes, bytes);
}
inline void cp_async_cg_shared_global(uint32_t to, const void* from, int bytes) {
  copy_few(to, from, bytes, bytes);
}
inline void cp_async_cg_shared_global(uint32_t to, const void* from, int bytes, int wanted) {
  copy_few(to, from, bytes, wanted);
}
inline void cp_async_cg_shared_global_L2_cache_hint(uint32_t to, const void* from, int bytes,
                                                    int wanted, uint64_t) {
  copy_few(to, from, bytes, wanted);
}
inline void cp_async_mbarrier_arrive_noinc_shared_b64(uint32_t barrier) {
  arrive_with_copies(barrier);
}
inline void cp_async_wait_all() { wait_for_copies(); }

// Barriers in shared memory.
inline void fence_mbarrier_init_release_cluster() {}
inline void fence_proxy_async_global() {}
inline void fence_proxy_async_shared_cta() {}
void mbarrier_init_shared_b64(uint32_t barrier, int arrivals);
void mbarrier_arrive_expect_tx_shared_cta_b64(uint32_t barrier, int bytes);
void mbarrier_arrive_shared_b64(uint32_t barrier);
inline void mbarrier_arrive_shared_cta_b64(uint32_t barrier) {
  mbarrier_arrive_shared_b64(barrier);
}
void mbarrier_test_wait_parity_shared_b64(uint32_t& done, uint32_t barrier, uint32_t parity);
inline void mbarrier_try_wait_parity_shared_cta_b64(uint32_t& done, uint32_t barrier,
                                                    uint32_t parity) {
  mbarrier_test_wait_parity_shared_b64(done, barrier, parity);
}

// Four 8 × 8 matrices of 16 bits: lane 8·m + r names row r of matrix m; lane 4·g + t gets of each
// the elements 2t and 2t + 1 of row g, or, transposed, of column g.
template <bool kTransposed>
void load_matrices(uint32_t& r0, uint32_t& r1, uint32_t& r2, uint32_t& r3, uint32_t at) {
  struct Four {
    uint32_t r[4];
  };
  if (at % 16 != 0) fail("a row of ldmatrix is not aligned");
  const auto* const row = static_cast<const uint16_t*>(shared_at(at, 16));
  const Four four = together<Four>(
      0xFFFFFFFFu, row, [](const uint16_t* const* const(&in)[kWarp], Four* const(&out)[kWarp]) {
        for (int i = 0; i < kWarp; ++i)
          for (int m = 0; m < 4; ++m) {
            uint32_t values[2];
            for (int j = 0; j < 2; ++j) {
              const int g = i / 4, place = 2 * (i % 4) + j;
              values[j] = kTransposed ? (*in[8 * m + place])[g] : (*in[8 * m + g])[place];
            }
            out[i]->r[m] = values[0] | values[1] << 16;
          }
      });
  r0 = four.r[0], r1 = four.r[1], r2 = four.r[2], r3 = four.r[3];
}
inline void ldmatrix_sync_aligned_m8n8_x4_shared_b16(uint32_t& r0, uint32_t& r1, uint32_t& r2,
                                                     uint32_t& r3, uint32_t at) {
  load_matrices<false>(r0, r1, r2, r3, at);
}
inline void ldmatrix_sync_aligned_m8n8_x4_trans_shared_b16(uint32_t& r0, uint32_t& r1, uint32_t& r2,
                                                           uint32_t& r3, uint32_t at) {
  load_matrices<true>(r0, r1, r2, r3, at);
}

// d = a · b + c of 16 × k times k × 8, what a lane has of each. Sums of floats are made as if exact
// and rounded once, which no GPU promises.
template <typename Sum>
struct MatrixLane {
  uint32_t a[4], b[2];
  Sum c[4];
};
template <typename Sum>
struct MatrixSums {
  Sum d[4];
};
template <typename Sum>
struct MatrixProduct {
  MatrixSums<Sum> (*multiply)(const MatrixLane<Sum>& own);
  void operator()(Sum& d0, Sum& d1, Sum& d2, Sum& d3, uint32_t a0, uint32_t a1, uint32_t a2,
                  uint32_t a3, uint32_t b0, uint32_t b1, Sum c0, Sum c1, Sum c2, Sum c3) const {
    const MatrixSums<Sum> sums = multiply({{a0, a1, a2, a3}, {b0, b1}, {c0, c1, c2, c3}});
    d0 = sums.d[0], d1 = sums.d[1], d2 = sums.d[2], d3 = sums.d[3];
  }
};
extern const MatrixProduct<float> mma_sync_aligned_m16n8k16_row_col_f32_bf16_bf16_f32;
extern const MatrixProduct<float> mma_sync_aligned_m16n8k16_row_col_f32_f16_f16_f32;
extern const MatrixProduct<int32_t> mma_sync_aligned_m16n8k32_row_col_s32_s8_s8_s32;
extern const MatrixProduct<int32_t> mma_sync_aligned_m16n8k32_row_col_s32_u8_s8_s32;

}  // namespace emulator::ptx
