// A grid of full multiprocessors strides over memory, 16 bytes a thread and eight loads in flight.
// Every byte is read once and past the first-level cache; limited by memory alone.

#include "backend/cuda/common/kernel.cuh"
#include "backend/cuda/common/read_all.h"

namespace pewter::cuda {
namespace {

constexpr int kThreads = 512, kBlocks = 3, kLoads = 8;  // blocks of a multiprocessor: 1536 threads

__global__ void __launch_bounds__(kThreads, kBlocks) read_kernel(uint4* from, int64_t count) {
  const int64_t stride = static_cast<int64_t>(gridDim.x) * kThreads;
  int64_t i = blockIdx.x * static_cast<int64_t>(kThreads) + threadIdx.x;
  uint32_t sum = 0;
  const auto add = [&sum](const uint4& v) { sum ^= v.x ^ v.y ^ v.z ^ v.w; };
  for (; i + (kLoads - 1) * stride < count; i += kLoads * stride) {
    uint4 v[kLoads];
#pragma unroll
    for (int j = 0; j < kLoads; ++j) v[j] = __ldcs(from + i + j * stride);
#pragma unroll
    for (int j = 0; j < kLoads; ++j) add(v[j]);
  }
  for (; i < count; i += stride) add(__ldcs(from + i));
  if (sum == 0x9E3779B9u) from->x = sum;  // so that the loads are not left out
}

}  // namespace

void read_all(cudaStream_t stream, int multiprocessors, std::byte* from, int64_t bytes) {
  read_kernel<<<static_cast<unsigned>(multiprocessors * kBlocks), kThreads, 0, stream>>>(
      reinterpret_cast<uint4*>(from), bytes / 16);
  CUDA_CHECK(cudaGetLastError());
}

}  // namespace pewter::cuda
