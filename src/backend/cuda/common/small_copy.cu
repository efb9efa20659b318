#include "backend/cuda/common/small_copy.h"

#include <cstring>

#include "backend/cuda/common/kernel.cuh"

namespace pewter::cuda {
namespace {

constexpr int kWords = kMostSmallBytes / 4, kThreads = 128;
struct Words {
  uint32_t word[kWords];
};

__global__ void write_kernel(const __grid_constant__ Words from, uint32_t* to, int words) {
  for (int i = static_cast<int>(threadIdx.x); i < words; i += kThreads) to[i] = from.word[i];
}

__global__ void publish_kernel(const uint32_t* from, volatile uint32_t* to, int words,
                               volatile uint32_t* flag, uint32_t number) {
  wait_for_inputs();
  for (int i = static_cast<int>(threadIdx.x); i < words; i += kThreads) to[i] = from[i];
  __threadfence_system();
  __syncthreads();
  if (threadIdx.x == 0) *flag = number;
}

}  // namespace

bool is_small_copy(const void* on_device, size_t bytes) {
  return bytes <= kMostSmallBytes && bytes % 4 == 0 &&
         reinterpret_cast<uintptr_t>(on_device) % 4 == 0;
}

void write_small(cudaStream_t stream, void* to, std::span<const std::byte> from) {
  Words words;
  std::memcpy(words.word, from.data(), from.size());
  launch(Start::kInOrder, stream, dim3(1), dim3(kThreads), 0, write_kernel, words,
         static_cast<uint32_t*>(to), static_cast<int>(from.size() / 4));
}

void publish_small(cudaStream_t stream, const void* from, void* to, size_t bytes, uint32_t* flag,
                   uint32_t number) {
  launch(stream, dim3(1), dim3(kThreads), 0, publish_kernel, static_cast<const uint32_t*>(from),
         static_cast<volatile uint32_t*>(to), static_cast<int>(bytes / 4),
         static_cast<volatile uint32_t*>(flag), number);
}

}  // namespace pewter::cuda
