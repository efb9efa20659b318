// A kernel that asks for more shared memory than DGX Spark has is caught on every GPU, so that each
// test which runs on one also holds the kernels it launches to that.

#include <gtest/gtest.h>

#include "backend/cuda/common/kernel.cuh"

namespace pewter::cuda {
namespace {

constexpr size_t kStatic = 4096;

__global__ void greedy_kernel(float* out) {
  __shared__ float memory[kStatic / sizeof(float)];
  memory[threadIdx.x] = static_cast<float>(threadIdx.x);
  __syncthreads();
  if (out != nullptr) *out = memory[threadIdx.x ^ 1u];
}

class Launch : public testing::Test {
 protected:
  void SetUp() override {
    int count = 0;
    if (cudaGetDeviceCount(&count) != cudaSuccess || count == 0) GTEST_SKIP() << "no GPU";
  }
  static void launch_with(size_t dynamic_bytes) {
    CUDA_CHECK(cudaFuncSetAttribute(greedy_kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                    static_cast<int>(dynamic_bytes)));
    launch(nullptr, dim3(1), dim3(32), dynamic_bytes, greedy_kernel, nullptr);
    CUDA_CHECK(cudaDeviceSynchronize());
  }
};

TEST_F(Launch, TakesWhatEveryGpuHas) { launch_with(kMostSharedBytes - kStatic); }

TEST_F(Launch, RefusesMore) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");  // a child of its own: CUDA survives no fork
  EXPECT_DEATH(launch_with(kMostSharedBytes - kStatic + 16),
               "bytes of shared memory, more than every GPU has");
}

}  // namespace
}  // namespace pewter::cuda
