// Weights on their way to one warp: a ring of stages in shared memory, a block of a tile each. For
// the router's few weights; stages.cuh serves whole blocks of threads.
#pragma once

#include "backend/cuda/common/bulk.cuh"

namespace pewter::cuda {

constexpr int kRingStageBytes = 2208;  // a block of any format
constexpr int kRingStages = 4;

struct Ring {
  uint32_t base, barriers;  // addresses in shared memory: of the warp's first stage and barrier
  int in = 0, out = 0;
  uint32_t phases = 0;  // bit s: the parity stage s completes next

  // Called by a whole warp. barriers: kRingStages of 8 bytes.
  __device__ Ring(const void* first_stage, const void* first_barrier, int lane)
      : base(shared_address(first_stage)), barriers(shared_address(first_barrier)) {
    if (lane == 0) {
      for (int i = 0; i < kRingStages; ++i) init_barrier<kBulkCopies ? 1 : kWarp>(barriers + 8 * i);
      publish_barriers();
    }
    __syncwarp();
  }

  // Requests a block.
  __device__ void request(const uint8_t* from, int bytes, int lane) {
    const uint32_t to = base + in * kRingStageBytes, barrier = barriers + 8 * in;
    if (!kBulkCopies) {
      copy_by_threads(to, from, bytes, lane, kWarp);
      arrive_with_copies(barrier);
    } else if (lane == 0) {
      expect_bytes(barrier, bytes);
      copy_bulk(to, from, bytes, barrier);
    }
    in = in + 1 == kRingStages ? 0 : in + 1;
  }
  // Waits for the oldest block and returns its address.
  __device__ uint32_t wait() {
    wait_barrier(barriers + 8 * out, phases >> out & 1);
    return base + out * kRingStageBytes;
  }
  // The oldest block has been read by this lane: afterwards its stage may be filled again.
  __device__ void release() {
    phases ^= 1u << out;
    out = out + 1 == kRingStages ? 0 : out + 1;
    __syncwarp();
  }
};

}  // namespace pewter::cuda
