#include <mutex>
#include <unordered_set>

#include "backend/cuda/common/kernel.cuh"

namespace pewter::cuda {

void set_kernel_limits(const void* kernel, size_t shared_bytes) {
  constexpr size_t kBlockShared = 99 * 1024;
  static std::mutex mutex;
  static std::unordered_set<const void*> prepared;
  const std::lock_guard lock(mutex);
  if (prepared.insert(kernel).second) {
    cudaFuncAttributes attributes{};
    CUDA_CHECK(cudaFuncGetAttributes(&attributes, kernel));
    CUDA_CHECK(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                    static_cast<int>(kBlockShared - attributes.sharedSizeBytes)));
    CUDA_CHECK(cudaFuncSetAttribute(kernel, cudaFuncAttributePreferredSharedMemoryCarveout,
                                    cudaSharedmemCarveoutMaxShared));
  }
  CHECK(shared_bytes <= kBlockShared, "a kernel asks for ", shared_bytes,
        " bytes of shared memory, more than every GPU has");
}

}  // namespace pewter::cuda
