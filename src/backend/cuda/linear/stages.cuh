// Weights on their way to a block of threads: a few stages in shared memory, each filled by one or
// more bulk copies that one thread requests, so that the multiprocessor's time is left for the
// arithmetic.
#pragma once

#include "backend/cuda/common/bulk.cuh"

namespace pewter::cuda {

constexpr int kStreamWarps = 8, kStreamThreads = kStreamWarps * kWarp;
constexpr int kLeastStages = 2, kMostStages = 4;

template <int kThreads = kStreamThreads>
struct Stages {
  uint32_t base, barriers;  // addresses in shared memory
  int bytes, count;         // of a stage; stages
  int in = 0, out = 0;
  uint32_t phases = 0;  // bit s: the parity stage s completes next

  // Complete after a barrier of the block. barriers: of 8 bytes each.
  __device__ Stages(const void* first_stage, const void* first_barrier, int stage_bytes,
                    int stage_count)
      : base(shared_address(first_stage)),
        barriers(shared_address(first_barrier)),
        bytes(stage_bytes),
        count(stage_count) {
    const int i = static_cast<int>(threadIdx.x);
    if (i >= count) return;
    init_barrier<kBulkCopies ? 1 : kThreads>(barriers + 8 * i);
    publish_barriers();
  }

  // Whether this warp calls what follows to fill a stage: one warp, or all.
  static __device__ bool fills(int warp) { return !kBulkCopies || warp == 0; }
  // A stage that will hold `size` bytes: open, the copies, close.
  __device__ void open(int size) {
    if (threadIdx.x == 0) expect_bytes(barriers + 8 * in, size);
  }
  __device__ void copy(int at, const uint8_t* from, int size) {
    const uint32_t to = base + in * bytes + at;
    if (!kBulkCopies)
      copy_by_threads(to, from, size, static_cast<int>(threadIdx.x), kThreads);
    else if (threadIdx.x == 0)
      copy_bulk_once(to, from, size, barriers + 8 * in);
  }
  __device__ void close() {
    if (!kBulkCopies) arrive_with_copies(barriers + 8 * in);
    in = in + 1 == count ? 0 : in + 1;
  }

  // Waits for the oldest stage and returns its address.
  __device__ uint32_t wait() {
    wait_barrier(barriers + 8 * out, phases >> out & 1);
    return base + out * bytes;
  }
  // The oldest stage has been read; after a barrier of the block it may be filled again.
  __device__ void release() {
    phases ^= 1u << out;
    out = out + 1 == count ? 0 : out + 1;
  }
};

// Copies of a kernel's inputs, some at a time.
struct Transfer {
  uint32_t barrier, phase = 0;

  // Complete after a barrier of the block.
  __device__ explicit Transfer(const void* at) : barrier(shared_address(at)) {
    if (threadIdx.x != 0) return;
    init_barrier<1>(barrier);
    publish_barriers();
  }
  // By one thread: what this kernel's blocks of threads wrote, and this thread has waited for, is
  // seen by copies that it requests. What earlier kernels wrote is, after wait_for_inputs().
  static __device__ void see_writes() {
    if constexpr (kBulkCopies) asm volatile("fence.proxy.async.global;" ::: "memory");
  }
  // By one thread, after wait_for_inputs(): `count` copies of `size` bytes, number i from from(i)
  // to `to` + i · pitch. Both ends, size and pitch are multiples of 16.
  template <typename From>
  __device__ void request(void* to, int count, int size, int pitch, const From& from) const {
    expect_bytes(barrier, count * size);
#pragma unroll 1
    for (int i = 0; i < count; ++i)
      if constexpr (kBulkCopies)
        copy_bulk(shared_address(to) + i * pitch, from(i), size, barrier);
      else
        copy_by_threads(shared_address(to) + i * pitch, from(i), size, 0, 1);
    if constexpr (!kBulkCopies) arrive_with_copies(barrier);
  }
  __device__ void request(void* to, int size, const uint8_t* from) const {
    request(to, 1, size, 0, [&](int) { return from; });
  }
  // Until all that was requested has come. By all threads, before more is requested.
  __device__ void wait() {
    wait_barrier(barrier, phase);
    phase ^= 1;
  }
};

}  // namespace pewter::cuda
