#include <map>
#include <mutex>

#include "backend/cuda/common/kernel.cuh"

namespace pewter::cuda {

void set_kernel_limits(const void* kernel, size_t shared_bytes) {
  static std::mutex mutex;
  static std::map<const void*, size_t> static_bytes;
  const std::lock_guard lock(mutex);
  auto known = static_bytes.find(kernel);
  if (known == static_bytes.end()) {
    cudaFuncAttributes attributes{};
    CUDA_CHECK(cudaFuncGetAttributes(&attributes, kernel));
    known = static_bytes.emplace(kernel, attributes.sharedSizeBytes).first;
    CUDA_CHECK(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                    static_cast<int>(kMostSharedBytes - known->second)));
    CUDA_CHECK(cudaFuncSetAttribute(kernel, cudaFuncAttributePreferredSharedMemoryCarveout,
                                    cudaSharedmemCarveoutMaxShared));
  }
  CHECK(known->second + shared_bytes <= kMostSharedBytes, "a kernel asks for ",
        known->second + shared_bytes, " bytes of shared memory, more than every GPU has");
}

}  // namespace pewter::cuda
