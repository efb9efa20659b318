// The CUDA runtime's calls. Work is done when something waits for it, so that a stream has much of
// it and kernels may overlap.
#include <cuda_runtime.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <mutex>
#include <set>

#include "emulator/machine.h"

namespace emulator {
namespace {

constexpr size_t kMemoryBytes = size_t{64} << 30, kPoisonedBytes = size_t{64} << 20;

struct Runtime {
  std::recursive_mutex mutex;
  std::set<Stream*> streams;
  std::map<const std::byte*, size_t> memory;  // of the GPU
  std::map<const std::byte*, size_t> pinned;
  size_t taken = 0;
};
Runtime& runtime() {
  static Runtime* const made = new Runtime;
  return *made;
}
std::unique_lock<std::recursive_mutex> hold() { return std::unique_lock(runtime().mutex); }

void run_all() {
  for (Stream* const stream : runtime().streams) machine().run(*stream);
}
void push(Stream& stream, Work work) {
  if (stream.capture != nullptr)
    stream.capture->work.push_back(std::move(work));
  else
    stream.queue.push_back(std::move(work));
}
bool is_in(const std::map<const std::byte*, size_t>& ranges, const void* at) {
  const auto* const byte = static_cast<const std::byte*>(at);
  const auto next = ranges.upper_bound(byte);
  if (next == ranges.begin()) return false;
  const auto& [begin, size] = *std::prev(next);
  return byte < begin + size;
}

}  // namespace

cudaError_t enqueue(cudaStream_t stream, Launch launch) {
  const auto held = hold();
  push(*stream, {.launch = std::move(launch)});
  return cudaSuccess;
}

}  // namespace emulator

using emulator::hold;
using emulator::is_in;
using emulator::kGpu;
using emulator::machine;
using emulator::push;
using emulator::runtime;

const char* cudaGetErrorString(cudaError_t error) {
  return error == cudaSuccess ? "no error" : "an error of the emulated GPU";
}
cudaError_t cudaGetLastError() { return cudaSuccess; }

cudaError_t cudaGetDeviceCount(int* count) {
  *count = 1;
  return cudaSuccess;
}
cudaError_t cudaGetDeviceProperties(cudaDeviceProp* properties, int) {
  *properties = {};
  std::snprintf(properties->name, sizeof properties->name, "%s", kGpu.name);
  properties->major = kGpu.major;
  properties->minor = kGpu.minor;
  properties->integrated = kGpu.is_unified ? 1 : 0;
  properties->multiProcessorCount = emulator::multiprocessors();
  properties->l2CacheSize = kGpu.cache_bytes;
  properties->sharedMemPerMultiprocessor = static_cast<size_t>(kGpu.shared_bytes);
  return cudaSuccess;
}
cudaError_t cudaDeviceSynchronize() {
  const auto held = hold();
  emulator::run_all();
  return cudaSuccess;
}
cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessor(int* blocks, const void*, int threads,
                                                          size_t shared_bytes) {
  const auto memory = static_cast<int64_t>(shared_bytes) + emulator::kOwnSharedBytes;
  *blocks = static_cast<int>(
      std::min<int64_t>(kGpu.shared_bytes / memory, emulator::kThreadsOfMultiprocessor / threads));
  return cudaSuccess;
}

cudaError_t cudaMemGetInfo(size_t* available, size_t* total) {
  const auto held = hold();
  *total = emulator::kMemoryBytes;
  *available = emulator::kMemoryBytes - runtime().taken;
  return cudaSuccess;
}
cudaError_t cudaMalloc(void** memory, size_t bytes) {
  const auto held = hold();
  const size_t size = (bytes + 255) / 256 * 256;
  *memory = nullptr;
  if (size > emulator::kMemoryBytes - runtime().taken) return cudaErrorMemoryAllocation;
  *memory = std::aligned_alloc(256, size);
  if (*memory == nullptr) return cudaErrorMemoryAllocation;
  std::memset(*memory, emulator::kPoison, std::min(size, emulator::kPoisonedBytes));
  runtime().memory[static_cast<std::byte*>(*memory)] = size;
  runtime().taken += size;
  return cudaSuccess;
}
cudaError_t cudaFree(void* memory) {
  const auto held = hold();
  emulator::run_all();
  const auto found = runtime().memory.find(static_cast<std::byte*>(memory));
  if (found == runtime().memory.end()) return cudaErrorInvalidValue;
  runtime().taken -= found->second;
  runtime().memory.erase(found);
  std::free(memory);
  return cudaSuccess;
}
cudaError_t cudaMallocHost(void** memory, size_t bytes) {
  *memory = std::aligned_alloc(4096, (bytes + 4095) / 4096 * 4096);
  if (*memory == nullptr) return cudaErrorMemoryAllocation;
  return cudaHostRegister(*memory, bytes, cudaHostRegisterDefault);
}
cudaError_t cudaFreeHost(void* memory) {
  const cudaError_t status = cudaHostUnregister(memory);
  std::free(memory);
  return status;
}
cudaError_t cudaHostRegister(void* memory, size_t bytes, unsigned) {
  const auto held = hold();
  runtime().pinned[static_cast<std::byte*>(memory)] = bytes;
  return cudaSuccess;
}
cudaError_t cudaHostUnregister(void* memory) {
  const auto held = hold();
  emulator::run_all();
  return runtime().pinned.erase(static_cast<std::byte*>(memory)) == 1 ? cudaSuccess
                                                                      : cudaErrorInvalidValue;
}

cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned) {
  const auto held = hold();
  *stream = new emulator::Stream;
  runtime().streams.insert(*stream);
  return cudaSuccess;
}
cudaError_t cudaStreamDestroy(cudaStream_t stream) {
  const auto held = hold();
  machine().run(*stream);
  runtime().streams.erase(stream);
  delete stream;
  return cudaSuccess;
}
cudaError_t cudaStreamSynchronize(cudaStream_t stream) {
  const auto held = hold();
  machine().run(*stream);
  return cudaSuccess;
}
cudaError_t cudaStreamQuery(cudaStream_t stream) { return cudaStreamSynchronize(stream); }
cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned) {
  const auto held = hold();
  if (emulator::Stream* const other = event->stream; other != nullptr && other != stream)
    push(*stream, {.host = [other] {
      if (runtime().streams.contains(other)) machine().run(*other);
    }});
  return cudaSuccess;
}

cudaError_t cudaEventCreate(cudaEvent_t* event) {
  *event = new emulator::Event;
  return cudaSuccess;
}
cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned) {
  return cudaEventCreate(event);
}
cudaError_t cudaEventDestroy(cudaEvent_t event) {
  const cudaError_t status = cudaEventSynchronize(event);
  delete event;
  return status;
}
cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
  const auto held = hold();
  event->stream = stream;
  push(*stream, {.host = [event] { event->time = std::chrono::steady_clock::now(); }});
  return cudaSuccess;
}
cudaError_t cudaEventSynchronize(cudaEvent_t event) {
  const auto held = hold();
  if (runtime().streams.contains(event->stream)) machine().run(*event->stream);
  return cudaSuccess;
}
cudaError_t cudaEventElapsedTime(float* milliseconds, cudaEvent_t begin, cudaEvent_t end) {
  *milliseconds = std::chrono::duration<float, std::milli>(end->time - begin->time).count();
  return cudaSuccess;
}

cudaError_t cudaMemcpyAsync(void* to, const void* from, size_t bytes, cudaMemcpyKind kind,
                            cudaStream_t stream) {
  const auto held = hold();
  const bool is_captured = stream->capture != nullptr;
  if (kind == cudaMemcpyHostToDevice && !is_captured && !is_in(runtime().pinned, from)) {
    // Ordinary memory may be changed as soon as the call has returned.
    const auto* const begin = static_cast<const std::byte*>(from);
    push(*stream, {.host = [to, own = std::vector<std::byte>(begin, begin + bytes)] {
      std::memcpy(to, own.data(), own.size());
    }});
    return cudaSuccess;
  }
  push(*stream, {.host = [=] { std::memmove(to, from, bytes); }});
  if (kind == cudaMemcpyDeviceToHost && !is_captured && !is_in(runtime().pinned, to))
    machine().run(*stream);
  return cudaSuccess;
}
cudaError_t cudaMemsetAsync(void* at, int value, size_t bytes, cudaStream_t stream) {
  const auto held = hold();
  push(*stream, {.host = [=] { std::memset(at, value, bytes); }});
  return cudaSuccess;
}

cudaError_t cudaStreamBeginCapture(cudaStream_t stream, cudaStreamCaptureMode) {
  const auto held = hold();
  stream->capture = new emulator::Graph;
  return cudaSuccess;
}
cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t* graph) {
  const auto held = hold();
  *graph = std::exchange(stream->capture, nullptr);
  return cudaSuccess;
}
cudaError_t cudaGraphInstantiate(cudaGraphExec_t* made, cudaGraph_t graph, unsigned) {
  *made = new emulator::Graph(*graph);
  return cudaSuccess;
}
cudaError_t cudaGraphLaunch(cudaGraphExec_t graph, cudaStream_t stream) {
  const auto held = hold();
  stream->queue.insert(stream->queue.end(), graph->work.begin(), graph->work.end());
  return cudaSuccess;
}
cudaError_t cudaGraphDestroy(cudaGraph_t graph) {
  delete graph;
  return cudaSuccess;
}
cudaError_t cudaGraphExecDestroy(cudaGraphExec_t graph) { return cudaGraphDestroy(graph); }
