// What Pewter uses of the CUDA runtime, run on the CPU by machine.cc. Calls, structures and their
// fields have CUDA's names, since the sources that include this are those of the GPU.
#pragma once

#include <cstddef>
#include <cstdint>

#define __host__
#define __device__

enum cudaError_t {
  cudaSuccess = 0,
  cudaErrorInvalidValue = 1,
  cudaErrorMemoryAllocation = 2,
  cudaErrorNotReady = 600,
};
const char* cudaGetErrorString(cudaError_t error);
cudaError_t cudaGetLastError();

struct uint3 {
  unsigned x, y, z;
};
struct dim3 {
  unsigned x, y, z;
  constexpr dim3(unsigned of_x = 1, unsigned of_y = 1, unsigned of_z = 1)
      : x(of_x), y(of_y), z(of_z) {}
};

namespace emulator {
struct Stream;
struct Event;
struct Graph;
}  // namespace emulator
using cudaStream_t = emulator::Stream*;
using cudaEvent_t = emulator::Event*;
using cudaGraph_t = emulator::Graph*;
using cudaGraphExec_t = emulator::Graph*;

struct cudaDeviceProp {
  char name[256];
  int major, minor, integrated, multiProcessorCount, l2CacheSize;
  size_t sharedMemPerMultiprocessor;
};
cudaError_t cudaGetDeviceCount(int* count);
cudaError_t cudaGetDeviceProperties(cudaDeviceProp* properties, int device);
cudaError_t cudaDeviceSynchronize();

cudaError_t cudaMemGetInfo(size_t* available, size_t* total);
cudaError_t cudaMalloc(void** memory, size_t bytes);
cudaError_t cudaFree(void* memory);
cudaError_t cudaMallocHost(void** memory, size_t bytes);
cudaError_t cudaFreeHost(void* memory);
constexpr unsigned cudaHostRegisterDefault = 0;
cudaError_t cudaHostRegister(void* memory, size_t bytes, unsigned flags);
cudaError_t cudaHostUnregister(void* memory);

constexpr unsigned cudaStreamNonBlocking = 1;
cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned flags);
cudaError_t cudaStreamDestroy(cudaStream_t stream);
cudaError_t cudaStreamSynchronize(cudaStream_t stream);
cudaError_t cudaStreamQuery(cudaStream_t stream);
cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned flags);

constexpr unsigned cudaEventBlockingSync = 1, cudaEventDisableTiming = 2;
cudaError_t cudaEventCreate(cudaEvent_t* event);
cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned flags);
cudaError_t cudaEventDestroy(cudaEvent_t event);
cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream);
cudaError_t cudaEventSynchronize(cudaEvent_t event);
cudaError_t cudaEventElapsedTime(float* milliseconds, cudaEvent_t begin, cudaEvent_t end);

enum cudaMemcpyKind { cudaMemcpyHostToDevice, cudaMemcpyDeviceToHost, cudaMemcpyDeviceToDevice };
cudaError_t cudaMemcpyAsync(void* to, const void* from, size_t bytes, cudaMemcpyKind kind,
                            cudaStream_t stream);
cudaError_t cudaMemsetAsync(void* at, int value, size_t bytes, cudaStream_t stream);

enum cudaStreamCaptureMode { cudaStreamCaptureModeThreadLocal };
cudaError_t cudaStreamBeginCapture(cudaStream_t stream, cudaStreamCaptureMode mode);
cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t* graph);
cudaError_t cudaGraphInstantiate(cudaGraphExec_t* made, cudaGraph_t graph, unsigned flags);
cudaError_t cudaGraphLaunch(cudaGraphExec_t graph, cudaStream_t stream);
cudaError_t cudaGraphDestroy(cudaGraph_t graph);
cudaError_t cudaGraphExecDestroy(cudaGraphExec_t graph);
