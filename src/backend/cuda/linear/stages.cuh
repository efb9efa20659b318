// Weights on their way to a block of threads: a few stages in shared memory, each filled by one or
// more bulk copies that one thread requests and that count their bytes on a barrier. Asking for
// twenty kilobytes costs a dozen instructions of one warp, so the multiprocessor's time is left for
// the arithmetic. GPUs before compute capability 9.0 have no bulk copies: there all threads copy 16
// bytes at a time.
#pragma once

#include "backend/cuda/common/kernel.cuh"

namespace pewter::cuda {

#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900
constexpr bool kBulkCopies = true;
#else
constexpr bool kBulkCopies = false;
#endif

constexpr int kStreamWarps = 8, kStreamThreads = kStreamWarps * kWarp;
constexpr int kStages = 2;

template <int kThreads = kStreamThreads>
struct Stages {
  uint32_t base, barriers;  // addresses in shared memory
  int bytes, count;         // of a stage; stages
  int in = 0, out = 0;
  uint32_t phases = 0;  // bit s: the parity stage s completes next

  // Complete after a barrier of the block. barriers: of 8 bytes each.
  __device__ Stages(const void* first_stage, const void* first_barrier, int stage_bytes,
                    int stage_count = kStages)
      : base(static_cast<uint32_t>(__cvta_generic_to_shared(first_stage))),
        barriers(static_cast<uint32_t>(__cvta_generic_to_shared(first_barrier))),
        bytes(stage_bytes),
        count(stage_count) {
    if (threadIdx.x != 0) return;
    for (int i = 0; i < count; ++i)
      asm volatile("mbarrier.init.shared.b64 [%0], %1;" ::"r"(barriers + 8 * i),
                   "n"(kBulkCopies ? 1 : kThreads)
                   : "memory");
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
#endif
  }

  // Whether this warp calls what follows to fill a stage: one warp, or all.
  static __device__ bool fills(int warp) { return !kBulkCopies || warp == 0; }
  // A stage that will hold `size` bytes: open, the copies, close.
  __device__ void open(int size) {
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900
    if (threadIdx.x == 0)
      asm volatile(
          "mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barriers + 8 * in),
          "r"(size)
          : "memory");
#else
    (void)size;
#endif
  }
  __device__ void copy(int at, const uint8_t* from, int size) {
    const uint32_t to = base + in * bytes + at;
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900
    if (threadIdx.x == 0)
      asm volatile(
          "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, "
          "[%3];" ::"r"(to),
          "l"(from), "r"(size), "r"(barriers + 8 * in)
          : "memory");
#else
    for (int i = 16 * static_cast<int>(threadIdx.x); i < size; i += 16 * kThreads)
      asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(to + i), "l"(from + i)
                   : "memory");
#endif
  }
  __device__ void close() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ < 900
    asm volatile("cp.async.mbarrier.arrive.noinc.shared.b64 [%0];" ::"r"(barriers + 8 * in)
                 : "memory");
#endif
    in = in + 1 == count ? 0 : in + 1;
  }

  // Waits for the oldest stage and returns its address.
  __device__ uint32_t wait() {
    const uint32_t barrier = barriers + 8 * out, parity = phases >> out & 1;
    uint32_t done;
    do {
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900
      asm volatile(
          "{ .reg .pred p; mbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2; selp.u32 %0, 1, "
          "0, "
          "p; }"
          : "=r"(done)
          : "r"(barrier), "r"(parity)
          : "memory");
#else
      asm volatile(
          "{ .reg .pred p; mbarrier.test_wait.parity.shared.b64 p, [%1], %2; selp.u32 %0, 1, 0, p; "
          "}"
          : "=r"(done)
          : "r"(barrier), "r"(parity)
          : "memory");
#endif
    } while (done == 0);
    return base + out * bytes;
  }
  // The oldest stage has been read; after a barrier of the block it may be filled again.
  __device__ void release() {
    phases ^= 1u << out;
    out = out + 1 == count ? 0 : out + 1;
  }
};

// One copy by itself, of a kernel's inputs. Without bulk copies the thread that requests makes it.
struct Transfer {
  uint32_t barrier;

  // Complete after a barrier of the block.
  __device__ explicit Transfer(const void* at)
      : barrier(static_cast<uint32_t>(__cvta_generic_to_shared(at))) {
    if (threadIdx.x == 0)
      asm volatile("mbarrier.init.shared.b64 [%0], 1;" ::"r"(barrier) : "memory");
  }
  // By one thread, after wait_for_inputs(). Both ends and size are multiples of 16.
  __device__ void request(void* to, const void* from, int size) const {
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900
    asm volatile("fence.proxy.async;" ::: "memory");  // others wrote what the copy reads
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier), "r"(size)
                 : "memory");
    asm volatile(
        "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, "
        "[%3];" ::"r"(static_cast<uint32_t>(__cvta_generic_to_shared(to))),
        "l"(from), "r"(size), "r"(barrier)
        : "memory");
#else
    for (int i = 0; i < size / 16; ++i)
      static_cast<uint4*>(to)[i] = static_cast<const uint4*>(from)[i];
    asm volatile("mbarrier.arrive.shared.b64 _, [%0];" ::"r"(barrier) : "memory");
#endif
  }
  __device__ void wait() const {
    uint32_t done;
    do {
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900
      asm volatile(
          "{ .reg .pred p; mbarrier.try_wait.parity.shared::cta.b64 p, [%1], 0; selp.u32 %0, 1, 0, "
          "p; }"
          : "=r"(done)
          : "r"(barrier)
          : "memory");
#else
      asm volatile(
          "{ .reg .pred p; mbarrier.test_wait.parity.shared.b64 p, [%1], 0; selp.u32 %0, 1, 0, p; }"
          : "=r"(done)
          : "r"(barrier)
          : "memory");
#endif
    } while (done == 0);
  }
};

}  // namespace pewter::cuda
