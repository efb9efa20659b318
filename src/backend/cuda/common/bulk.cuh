// Bulk copies from memory into shared memory, which count their bytes on a barrier there: asking
// for twenty kilobytes costs a dozen instructions of one thread. GPUs before compute capability 9.0
// have none; there many threads copy 16 bytes each.
#pragma once

#include "backend/cuda/common/kernel.cuh"

namespace pewter::cuda {

#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900
constexpr bool kBulkCopies = true;
#else
constexpr bool kBulkCopies = false;
#endif

__device__ inline uint32_t shared_address(const void* at) {
  return static_cast<uint32_t>(__cvta_generic_to_shared(at));
}

// Barriers are 8 bytes, given by their addresses in shared memory. `arrivals` complete a phase,
// with bulk copies their bytes as well.
template <int kArrivals>
__device__ inline void init_barrier(uint32_t barrier) {
  asm volatile("mbarrier.init.shared.b64 [%0], %1;" ::"r"(barrier), "n"(kArrivals) : "memory");
}
// Lets copies see barriers that this thread has made.
__device__ inline void publish_barriers() {
  if constexpr (kBulkCopies) asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}

// One arrival, and `bytes` that bulk copies will bring.
__device__ inline void expect_bytes(uint32_t barrier, int bytes) {
  if constexpr (kBulkCopies)
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier), "r"(bytes)
                 : "memory");
}
// What this thread wrote to shared memory lies before copies that will replace it, for whoever
// requests them and knows of it.
__device__ inline void publish_writes() {
  if constexpr (kBulkCopies) asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}
// Both ends and `bytes` are multiples of 16.
__device__ inline void copy_bulk(uint32_t to, const void* from, int bytes, uint32_t barrier) {
  if constexpr (kBulkCopies)
    asm volatile(
        "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, "
        "[%3];" ::"r"(to),
        "l"(from), "r"(bytes), "r"(barrier)
        : "memory");
}
// The same of what is read once a step: it is the first to leave the L2 cache, so that what every
// layer needs stays there, the kernels' instructions above all.
__device__ inline void copy_bulk_once(uint32_t to, const void* from, int bytes, uint32_t barrier) {
  if constexpr (kBulkCopies) {
    uint64_t policy;
    asm volatile("createpolicy.fractional.L2::evict_first.b64 %0, 1.0;" : "=l"(policy));
    asm volatile(
        "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.L2::cache_hint [%0], "
        "[%1], %2, [%3], %4;" ::"r"(to),
        "l"(from), "r"(bytes), "r"(barrier), "l"(policy)
        : "memory");
  }
}
// As copy_bulk, by `threads` threads, of which this is number `thread`; all then arrive.
__device__ inline void copy_by_threads(uint32_t to, const uint8_t* from, int bytes, int thread,
                                       int threads) {
  for (int i = 16 * thread; i < bytes; i += 16 * threads)
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(to + i), "l"(from + i)
                 : "memory");
}
// An arrival when this thread's copies have.
__device__ inline void arrive_with_copies(uint32_t barrier) {
  asm volatile("cp.async.mbarrier.arrive.noinc.shared.b64 [%0];" ::"r"(barrier) : "memory");
}

// Until the phase of this parity is complete.
__device__ inline void wait_barrier(uint32_t barrier, uint32_t parity) {
  uint32_t done;
  do {
    if constexpr (kBulkCopies)
      asm volatile(
          "{ .reg .pred p; mbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2; selp.u32 %0, 1, "
          "0, p; }"
          : "=r"(done)
          : "r"(barrier), "r"(parity)
          : "memory");
    else
      asm volatile(
          "{ .reg .pred p; mbarrier.test_wait.parity.shared.b64 p, [%1], %2; selp.u32 %0, 1, 0, "
          "p; }"
          : "=r"(done)
          : "r"(barrier), "r"(parity)
          : "memory");
  } while (done == 0);
}

}  // namespace pewter::cuda
