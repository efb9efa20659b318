// Blocks of threads that wait for one another within a kernel: words of memory on which they
// count. All blocks of the kernel must be resident at once, and the words are zero between kernels.
#pragma once

#include "backend/cuda/common/kernel.cuh"

namespace pewter::cuda {

// By one thread, after a barrier of its block: what the block has written until here is seen by
// whoever waits for the count.
__device__ inline void arrive_at(int32_t* word) {
  asm volatile("red.release.gpu.global.add.s32 [%0], 1;" ::"l"(word) : "memory");
}
// By one thread, before a barrier of its block: until `count` blocks have arrived.
__device__ inline void wait_for(const int32_t* word, int count) {
  int32_t seen;
  do asm volatile("ld.acquire.gpu.global.s32 %0, [%1];" : "=r"(seen) : "l"(word) : "memory");
  while (seen < count);
}
// By one thread of each of `blocks` blocks, when its block has used the words: the last makes
// `count` of them zero, of which number `at` counts those that have left. True for the last. There
// is no fence: whoever waits for a count leaves behind that.
__device__ inline bool leave(int32_t* words, int count, int at, int blocks) {
  if (atomicAdd(words + at, 1) != blocks - 1) return false;
  for (int i = 0; i < count; ++i) words[i] = 0;
  return true;
}

}  // namespace pewter::cuda
