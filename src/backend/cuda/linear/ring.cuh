// Weights on their way to one warp: a ring of stages in shared memory. For warps that have matrices
// of their own; stages.cuh serves whole blocks of threads.
#pragma once

#include "backend/cuda/common/bulk.cuh"

namespace pewter::cuda {

constexpr int kMostBlockBytes = 2208;  // of a block of any format

struct Ring {
  uint32_t base, barriers;  // addresses in shared memory: of the warp's first stage and barrier
  int bytes, count;         // of a stage; stages
  int in = 0, out = 0;
  uint32_t phases = 0;  // bit s: the parity stage s completes next

  // Called by a whole warp. barriers: `stages` of 8 bytes.
  __device__ Ring(const void* first_stage, const void* first_barrier, int stage_bytes, int stages,
                  int lane)
      : base(shared_address(first_stage)),
        barriers(shared_address(first_barrier)),
        bytes(stage_bytes),
        count(stages) {
    if (lane < count) {
      init_barrier<kBulkCopies ? 1 : kWarp>(barriers + 8 * lane);
      publish_barriers();
    }
    __syncwarp();
  }

  // Requests a stage.
  __device__ void request(const uint8_t* from, int size, int lane) {
    const uint32_t to = base + in * bytes, barrier = barriers + 8 * in;
    if (!kBulkCopies) {
      copy_by_threads(to, from, size, lane, kWarp);
      arrive_with_copies(barrier);
    } else if (lane == 0) {
      expect_bytes(barrier, size);
      copy_bulk_once(to, from, size, barrier);
    }
    in = in + 1 == count ? 0 : in + 1;
  }
  // Waits for the oldest stage and returns its address.
  __device__ uint32_t wait() {
    wait_barrier(barriers + 8 * out, phases >> out & 1);
    return base + out * bytes;
  }
  // The oldest stage has been read by this lane: afterwards it may be filled again.
  __device__ void release() {
    phases ^= 1u << out;
    out = out + 1 == count ? 0 : out + 1;
    __syncwarp();
  }
};

}  // namespace pewter::cuda
