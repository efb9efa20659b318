// As stages.cuh, for a warp by itself: the router's few weights.
#pragma once

#include "backend/cuda/common/kernel.cuh"

namespace pewter::cuda {

constexpr int kStageBytes = 2208;  // two blocks of int4 with all they may carry, one of the others
constexpr int kMostStages = 4;

// How blocks of a matrix pass through stages.
struct BlockRun {
  const uint8_t* from = nullptr;
  int blocks = 0, block_bytes = 0, per_stage = 1;
};
__host__ __device__ constexpr int blocks_per_stage(int block_bytes) {
  return kStageBytes / block_bytes;
}

struct Ring {
  uint32_t base, barriers;  // addresses in shared memory: of the warp's first stage and barrier
  int stages;
  int in = 0, out = 0;
  uint32_t phases = 0;  // bit s: the parity stage s completes next
  BlockRun run;         // what is left to request

  // Called by a whole warp. barriers: kMostStages of 8 bytes.
  __device__ Ring(const void* first_stage, const void* first_barrier, int count, int lane)
      : base(static_cast<uint32_t>(__cvta_generic_to_shared(first_stage))),
        barriers(static_cast<uint32_t>(__cvta_generic_to_shared(first_barrier))),
        stages(count) {
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900
    constexpr int kArrivals = 1;
#else
    constexpr int kArrivals = kWarp;
#endif
    if (lane < stages)
      asm volatile("mbarrier.init.shared.b64 [%0], %1;" ::"r"(barriers + 8 * lane), "n"(kArrivals)
                   : "memory");
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
#endif
    __syncwarp();
  }

  // Requests the next stage of `run`, which has blocks left.
  __device__ void request(int lane) {
    const int blocks = min(run.blocks, run.per_stage), bytes = blocks * run.block_bytes;
    const uint32_t to = base + in * kStageBytes, barrier = barriers + 8 * in;
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900
    if (lane == 0) {
      asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier),
                   "r"(bytes)
                   : "memory");
      asm volatile(
          "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, "
          "[%3];" ::"r"(to),
          "l"(run.from), "r"(bytes), "r"(barrier)
          : "memory");
    }
#else
    for (int i = 16 * lane; i < bytes; i += 16 * kWarp)
      asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(to + i), "l"(run.from + i)
                   : "memory");
    asm volatile("cp.async.mbarrier.arrive.noinc.shared.b64 [%0];" ::"r"(barrier) : "memory");
#endif
    run.from += bytes;
    run.blocks -= blocks;
    in = in + 1 == stages ? 0 : in + 1;
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
    return base + out * kStageBytes;
  }
  // The oldest stage has been read by this lane: afterwards it may be filled again.
  __device__ void release() {
    phases ^= 1u << out;
    out = out + 1 == stages ? 0 : out + 1;
    __syncwarp();
  }
};

}  // namespace pewter::cuda
