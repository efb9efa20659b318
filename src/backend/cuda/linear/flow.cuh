// Weights on their way from one warp that requests them to eight that multiply, in stages of shared
// memory, each with a task that says what they are. No barrier of the block is in it: a stage is
// full when its bytes have come, and empty when each of the eight warps has read it.
#pragma once

#include "backend/cuda/common/bulk.cuh"

namespace pewter::cuda {

// Blocks of threads of kernels with a flow: eight warps, and the one that requests.
constexpr int kFlowWarps = 8, kFlowThreads = (kFlowWarps + 1) * kWarp;
constexpr int kMostFlowStages = 6;

// A barrier of the eight warps, which the ninth has no part in.
__device__ inline void sync_flow() {
  asm volatile("bar.sync 1, %0;" ::"n"(kFlowWarps * kWarp) : "memory");
}
// A barrier that the ninth warp waits at and the eight pass: what they wrote before is seen by it.
__device__ inline void pass_ninth() {
  asm volatile("bar.arrive 2, %0;" ::"n"(kFlowThreads) : "memory");
}
__device__ inline void wait_as_ninth() {
  asm volatile("bar.sync 2, %0;" ::"n"(kFlowThreads) : "memory");
}
// A barrier that the eight warps wait at and the ninth passes; another one each time, since it may
// pass the second before they have come to the first.
template <int kTime>
__device__ inline void pass_as_ninth() {
  asm volatile("bar.arrive %0, %1;" ::"n"(3 + kTime), "n"(kFlowThreads) : "memory");
}
template <int kTime>
__device__ inline void wait_for_ninth() {
  asm volatile("bar.sync %0, %1;" ::"n"(3 + kTime), "n"(kFlowThreads) : "memory");
}
// One arrival at a barrier of shared memory.
__device__ inline void arrive(uint32_t barrier) {
  if constexpr (kBulkCopies)
    asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(barrier) : "memory");
}

template <typename Task, int kStages = kMostFlowStages>
struct FlowMemory {
  uint64_t full[kStages], empty[kStages];  // in this order
  Task tasks[kStages];
};

template <typename Task, int kStages = kMostFlowStages>
struct Flow {
  FlowMemory<Task, kStages>& memory;
  uint32_t full, base;  // addresses in shared memory: of the first barrier and stage
  int bytes, count;     // of a stage; stages
  int at = 0;
  uint32_t phase = 0;  // of stage `at`, flips with every turn

  // Complete after a barrier of the block.
  __device__ Flow(FlowMemory<Task, kStages>& flow_memory, const void* first_stage, int stage_bytes,
                  int stage_count)
      : memory(flow_memory),
        full(shared_address(flow_memory.full)),
        base(shared_address(first_stage)),
        bytes(stage_bytes),
        count(stage_count) {
    const int i = static_cast<int>(threadIdx.x);
    if (i >= count) return;
    init_barrier<1>(full + 8 * i);
    init_barrier<kFlowWarps>(empty() + 8 * i);
    publish_barriers();
  }
  __device__ uint32_t empty() const { return full + 8 * kStages; }
  __device__ void next() {
    if (++at == count) at = 0, phase ^= 1;
  }

  // By one thread of the warp that requests: waits for an empty stage; `size` bytes in it will be
  // weights, for which copy() follows; then next().
  __device__ void send(const Task& task, int size) {
    wait_barrier(empty() + 8 * at, phase ^ 1);
    memory.tasks[at] = task;
    expect_bytes(full + 8 * at, size);
  }
  __device__ void copy(int to, const uint8_t* from, int size) {
    copy_bulk_once(base + at * bytes + to, from, size, full + 8 * at);
  }

  // The same of what others will read as well.
  __device__ void bring(int to, const uint8_t* from, int size) {
    copy_bulk(base + at * bytes + to, from, size, full + 8 * at);
  }

  // By the thread that requests, when it has: until the eight warps have read all.
  __device__ void drain() {
#pragma unroll 1
    for (int i = 0; i < count; ++i) {
      wait_barrier(empty() + 8 * at, phase ^ 1);
      next();
    }
  }

  // By each of the eight warps: the next task, with its weights at address().
  __device__ const Task& receive() const {
    wait_barrier(full + 8 * at, phase);
    return memory.tasks[at];
  }
  __device__ uint32_t address() const { return base + at * bytes; }
  __device__ void release() {
    __syncwarp();
    if (threadIdx.x % kWarp == 0) arrive(empty() + 8 * at);
    next();
  }
};

}  // namespace pewter::cuda
