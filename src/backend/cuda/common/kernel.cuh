// What every kernel file needs: launches that may overlap the end of the kernel before them, block
// sums in a fixed order, conversions.
//
// Programmatic dependent launch. Kernels of a step are launched so that the next one's blocks start
// while the last ones of the kernel before still run. Every kernel therefore calls
// wait_for_inputs() before it reads what an earlier kernel wrote or writes what an earlier one
// reads. Before that it reads weights and what earlier steps left, for which the first kernel of a
// step calls start_next() only when it has waited (embed_kernel): none behind it starts before that
// step has ended. Others call start_next() as soon as they have begun, since the next kernel waits
// for their end by itself, unless that one looks at words (arrival.cuh) that an earlier kernel may
// still change.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>

#include <cstdint>
#include <utility>

#include "backend/cuda/common/cuda_check.h"

namespace pewter::cuda {

#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ < 900
__device__ inline void wait_for_inputs() {}
__device__ inline void start_next() {}
#else
__device__ inline void wait_for_inputs() { asm volatile("griddepcontrol.wait;" ::: "memory"); }
__device__ inline void start_next() { asm volatile("griddepcontrol.launch_dependents;"); }
#endif

// Shared memory a block has on every GPU we write for: DGX Spark's 99 KiB, though Hopper has 227.
inline constexpr size_t kMostSharedBytes = 99 * 1024;

// Blocks of threads that share out the registers of a multiprocessor, where Hopper has room for
// `blocks`. On DGX Spark shared memory has room for one, which may have the more registers.
constexpr int register_blocks(int blocks) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 1200
  static_cast<void>(blocks);
  return 1;
#else
  return blocks;
#endif
}

enum class Start { kEarly, kInOrder };

// Holds a kernel's static and dynamic shared memory to that. Before its first launch: lets it have
// as much, and asks for the largest share of the on-chip memory as shared memory. A multiprocessor
// changes that share only when it is idle, so kernels that are to overlap must all want the same.
void set_kernel_limits(const void* kernel, size_t shared_bytes);

template <typename... Parameters, typename... Arguments>
void launch(Start start, cudaStream_t stream, dim3 grid, dim3 block, size_t shared_bytes,
            void (*kernel)(Parameters...), Arguments&&... arguments) {
  set_kernel_limits(reinterpret_cast<const void*>(kernel), shared_bytes);
  cudaLaunchConfig_t config{};
  config.gridDim = grid;
  config.blockDim = block;
  config.dynamicSmemBytes = shared_bytes;
  config.stream = stream;
  cudaLaunchAttribute attribute{};
  attribute.id = cudaLaunchAttributeProgrammaticStreamSerialization;
  attribute.val.programmaticStreamSerializationAllowed = 1;
  config.attrs = &attribute;
  config.numAttrs = start == Start::kEarly ? 1 : 0;
  CUDA_CHECK(cudaLaunchKernelEx(&config, kernel, std::forward<Arguments>(arguments)...));
}
template <typename... Parameters, typename... Arguments>
void launch(cudaStream_t stream, dim3 grid, dim3 block, size_t shared_bytes,
            void (*kernel)(Parameters...), Arguments&&... arguments) {
  launch(Start::kEarly, stream, grid, block, shared_bytes, kernel,
         std::forward<Arguments>(arguments)...);
}

__device__ inline float to_float(float x) { return x; }
__device__ inline float to_float(__nv_bfloat16 x) { return __bfloat162float(x); }
__device__ inline float to_float(__half x) { return __half2float(x); }

// To a few units in the last place, in six instructions: what they are for is rounded to bf16.
__device__ inline float sigmoid(float x) { return __fdividef(1.0f, 1.0f + __expf(-x)); }
__device__ inline float silu(float x) { return __fdividef(x, 1.0f + __expf(-x)); }
__device__ inline float softplus(float x) { return x > 20.0f ? x : log1pf(expf(x)); }

// Keeps the compiler from computing values later, or anew.
template <typename... Values>
__device__ inline void settle(Values&... values) {
  const auto one = [](auto& value) {
    if constexpr (sizeof(value) == 8)
      asm volatile("" : "+l"(value));
    else
      asm volatile("" : "+r"(value));
  };
  (one(values), ...);
}

constexpr int kWarp = 32;

// The barrier of a block of threads, for functions that may run in a part of one and then are given
// that part's.
struct BlockBarrier {
  __device__ void operator()() const { __syncthreads(); }
};

// Sums of the 32 lanes, the same in all of them, in one order.
__device__ inline float warp_sum(float x) {
#pragma unroll
  for (int offset = kWarp / 2; offset > 0; offset /= 2)
    x += __shfl_xor_sync(0xFFFFFFFFu, x, offset);
  return x;
}
__device__ inline float warp_max(float x) {
#pragma unroll
  for (int offset = kWarp / 2; offset > 0; offset /= 2)
    x = fmaxf(x, __shfl_xor_sync(0xFFFFFFFFu, x, offset));
  return x;
}

// The sum over a block of up to 1024 threads, the same in all of them; scratch holds 32 floats.
// Ends with scratch free for reuse.
__device__ inline float block_sum(float x, float* scratch) {
  const int lane = threadIdx.x % kWarp, warp = threadIdx.x / kWarp;
  const int warps = (blockDim.x + kWarp - 1) / kWarp;
  x = warp_sum(x);
  if (lane == 0) scratch[warp] = x;
  __syncthreads();
  float total = 0;
  for (int i = 0; i < warps; ++i) total += scratch[i];
  __syncthreads();
  return total;
}

}  // namespace pewter::cuda
