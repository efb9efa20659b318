// CUDA C++ for a C++ compiler: words that mean nothing here, built-in variables and types,
// launches.
#pragma once

#include <cuda_runtime_api.h>

#include <cmath>
#include <functional>
#include <memory>
#include <tuple>

#include "emulator/device.h"
#include "emulator/intrinsics.h"
#include "emulator/ptx.h"

#ifndef PEWTER_EMULATED_ARCHITECTURE
#error "PEWTER_EMULATED_ARCHITECTURE says which GPU this is"
#endif
#define __CUDA_ARCH__ PEWTER_EMULATED_ARCHITECTURE
#define __global__
#define __forceinline__ inline
#define __grid_constant__
#define __launch_bounds__(...)
#define __align__(bytes) alignas(bytes)
#define __builtin_assume(condition) static_cast<void>(condition)

// Objects and not macros, since a launch's configuration has members of these names.
namespace emulator {
template <auto kPlace>
struct Coordinates {
  template <auto kMember>
  struct Number {
    operator unsigned() const { return kPlace().*kMember; }
  };
  using Three = std::remove_cvref_t<decltype(kPlace())>;
  [[no_unique_address]] Number<&Three::x> x;
  [[no_unique_address]] Number<&Three::y> y;
  [[no_unique_address]] Number<&Three::z> z;
};
}  // namespace emulator
inline constexpr emulator::Coordinates<+[]() -> const uint3& { return emulator::lane->thread; }>
    threadIdx;
inline constexpr emulator::Coordinates<+[]() -> const uint3& { return emulator::place().index; }>
    blockIdx;
inline constexpr emulator::Coordinates<+[]() -> const dim3& { return emulator::place().threads; }>
    blockDim;
inline constexpr emulator::Coordinates<+[]() -> const dim3& { return emulator::place().blocks; }>
    gridDim;

struct cudaFuncAttributes {
  size_t sharedSizeBytes;
};
enum cudaFuncAttribute {
  cudaFuncAttributeMaxDynamicSharedMemorySize,
  cudaFuncAttributePreferredSharedMemoryCarveout
};
constexpr int cudaSharedmemCarveoutMaxShared = 100;
// The size of static shared memory is not known before a kernel runs.
inline cudaError_t cudaFuncGetAttributes(cudaFuncAttributes* attributes, const void*) {
  *attributes = {};
  return cudaSuccess;
}
template <typename Kernel>
cudaError_t cudaFuncSetAttribute(Kernel*, cudaFuncAttribute, int) {
  return cudaSuccess;
}
// As if no kernel wanted more registers than its threads can have.
cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessor(int* blocks, const void* kernel,
                                                          int threads, size_t shared_bytes);
template <typename... Parameters>
cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessor(int* blocks, void (*)(Parameters...),
                                                          int threads, size_t shared_bytes) {
  return cudaOccupancyMaxActiveBlocksPerMultiprocessor(blocks, static_cast<const void*>(nullptr),
                                                       threads, shared_bytes);
}

enum cudaLaunchAttributeID { cudaLaunchAttributeProgrammaticStreamSerialization };
struct cudaLaunchAttribute {
  cudaLaunchAttributeID id;
  struct {
    int programmaticStreamSerializationAllowed;
  } val;
};
struct cudaLaunchConfig_t {
  dim3 gridDim, blockDim;
  size_t dynamicSmemBytes;
  cudaStream_t stream;
  cudaLaunchAttribute* attrs;
  unsigned numAttrs;
};

namespace emulator {

struct Launch {
  const void* function = nullptr;
  dim3 blocks, threads;
  size_t shared_bytes;
  bool is_early = false;       // may begin when the kernel before lets it
  std::function<void()> body;  // of a thread, with its arguments
};
cudaError_t enqueue(cudaStream_t stream, Launch launch);

template <typename... Parameters, typename... Arguments>
cudaError_t enqueue(cudaStream_t stream, Launch launch, void (*kernel)(Parameters...),
                    Arguments&&... arguments) {
  using Values = std::tuple<std::remove_const_t<Parameters>...>;
  const auto values = std::make_shared<const Values>(std::forward<Arguments>(arguments)...);
  launch.function = reinterpret_cast<const void*>(kernel);
  launch.body = [kernel, values] { std::apply(kernel, *values); };
  return enqueue(stream, std::move(launch));
}

}  // namespace emulator

template <typename... Parameters, typename... Arguments>
cudaError_t cudaLaunchKernelEx(const cudaLaunchConfig_t* config, void (*kernel)(Parameters...),
                               Arguments&&... arguments) {
  return emulator::enqueue(config->stream,
                           {.blocks = config->gridDim,
                            .threads = config->blockDim,
                            .shared_bytes = config->dynamicSmemBytes,
                            .is_early = config->numAttrs > 0},
                           kernel, std::forward<Arguments>(arguments)...);
}
