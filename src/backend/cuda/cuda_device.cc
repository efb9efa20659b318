#include "backend/cuda/cuda_device.h"

#include <algorithm>
#include <atomic>
#include <cstring>

#include "backend/cuda/common/cuda_check.h"
#include "backend/cuda/common/small_copy.h"
#include "backend/cuda/cuda_row_uploader.h"
#include "backend/cuda/linear/random_rows.h"
#include "backend/cuda/linear/weight_store.h"
#include "base/memory_info.h"

namespace pewter {
namespace {

constexpr size_t kFlagBytes = 16;  // in front of a copy to the host

}  // namespace

Result<std::shared_ptr<CudaDevice>> CudaDevice::make() {
  int count = 0;
  const cudaError_t status = cudaGetDeviceCount(&count);
  if (status != cudaSuccess || count == 0)
    return Error{ErrorCode::kUnavailable,
                 str_cat("cuda: no usable GPU (",
                         status == cudaSuccess ? "none found" : cudaGetErrorString(status), ")")};
  cudaDeviceProp properties{};
  CUDA_CHECK(cudaGetDeviceProperties(&properties, 0));
  std::shared_ptr<CudaDevice> device(new CudaDevice());
  device->description_ =
      str_cat(properties.name, ", compute capability ", properties.major, ".", properties.minor);
  if (properties.major < 8)
    return Error{ErrorCode::kUnavailable, str_cat("cuda: ", device->description_,
                                                  " is older than 8.0, the first that works")};
  device->unified_ = properties.integrated != 0;
  device->gpu_ = {.multiprocessors = properties.multiProcessorCount,
                  .shared_bytes = static_cast<int64_t>(properties.sharedMemPerMultiprocessor),
                  .cache_bytes = properties.l2CacheSize,
                  .has_bulk_copies = properties.major >= 9,
                  .adds_exactly = properties.major == 9};
  device->cache_bytes_ = properties.l2CacheSize;
  CUDA_CHECK(cudaStreamCreateWithFlags(&device->stream_, cudaStreamNonBlocking));
  return device;
}

CudaDevice::~CudaDevice() {
  for (const auto& [key, graph] : steps_)
    if (graph != nullptr) cudaGraphExecDestroy(graph);
  if (stream_ != nullptr) cudaStreamDestroy(stream_);
  if (pinned_ != nullptr) cudaFreeHost(pinned_);
  for (const CopyPlace& place : places_) {
    if (place.memory == nullptr) continue;
    cudaFreeHost(place.memory);
    cudaEventDestroy(place.done);
  }
}

DeviceMemory CudaDevice::memory() const {
  size_t available = 0, total = 0;
  CUDA_CHECK(cudaMemGetInfo(&available, &total));
  DeviceMemory memory{.total = static_cast<int64_t>(total),
                      .free = static_cast<int64_t>(available),
                      .kind = unified_ ? MemoryKind::kUnified : MemoryKind::kDevice};
  // The driver counts the host's page cache as taken; the host would give it back.
  if (unified_) memory.free = std::min(memory.total, available_memory_bytes());
  return memory;
}

Result<Buffer> CudaDevice::allocate(int64_t bytes) {
  const int64_t size = std::max<int64_t>(bytes, 1);
  void* data = nullptr;
  const cudaError_t status = cudaMalloc(&data, static_cast<size_t>(size));
  if (status == cudaErrorMemoryAllocation) {
    cudaGetLastError();  // not sticky: forget it
    return Error{
        ErrorCode::kResourceExhausted,
        str_cat("cannot allocate ", format_bytes(static_cast<double>(bytes)), " of GPU memory, ",
                format_bytes(static_cast<double>(available_bytes())), " are free")};
  }
  CUDA_CHECK(status);
  zero(static_cast<std::byte*>(data), size);
  return Buffer(data, size, [](void* p, int64_t) { cudaFree(p); });
}

std::byte* CudaDevice::pinned(size_t bytes) {
  constexpr size_t kBytes = size_t{1} << 20;
  if (bytes > kBytes / 4) return nullptr;
  if (pinned_ == nullptr) {
    void* memory = nullptr;
    CUDA_CHECK(cudaMallocHost(&memory, kBytes));
    pinned_ = static_cast<std::byte*>(memory);
  }
  if (pinned_used_ + bytes > kBytes) {
    CUDA_CHECK(cudaStreamSynchronize(stream_));  // who has a place there is done with it
    pinned_used_ = 0;
  }
  std::byte* const place = pinned_ + pinned_used_;
  pinned_used_ += (bytes + 15) / 16 * 16;
  return place;
}

// The smallest copies travel in a kernel's parameters; others go through pinned memory, from which
// the driver takes them without waiting.
void CudaDevice::copy_to_device(std::byte* to, std::span<const std::byte> from) {
  if (from.empty()) return;
  if (cuda::is_small_copy(to, from.size())) return cuda::write_small(stream_, to, from);
  const std::lock_guard lock(pinned_mutex_);
  if (std::byte* const place = pinned(from.size()); place != nullptr) {
    std::memcpy(place, from.data(), from.size());
    from = {place, from.size()};
  }
  CUDA_CHECK(cudaMemcpyAsync(to, from.data(), from.size(), cudaMemcpyHostToDevice, stream_));
}

void CudaDevice::copy_to_host(std::span<std::byte> to, const std::byte* from) {
  finish(begin_copy_to_host(to, from));
}

int CudaDevice::take_place(size_t bytes) {
  constexpr size_t kBytes = size_t{64} << 10;
  if (kFlagBytes + bytes > kBytes) return -1;
  for (int i = 0; i < kCopyPlaces; ++i) {
    CopyPlace& place = places_[static_cast<size_t>(i)];
    if (place.taken) continue;
    if (place.memory == nullptr) {
      void* memory = nullptr;
      CUDA_CHECK(cudaMallocHost(&memory, kBytes));
      CUDA_CHECK(cudaEventCreateWithFlags(&place.done, cudaEventDisableTiming));
      place.memory = static_cast<std::byte*>(memory);
    }
    place.taken = true;
    return i;
  }
  return -1;
}

// Small ones by a kernel that raises a flag, which is faster than the copy engine and an event.
HostCopy CudaDevice::begin_copy_to_host(std::span<std::byte> to, const std::byte* from) {
  if (to.empty()) return {};
  const std::lock_guard lock(pinned_mutex_);
  const HostCopy copy{.to = to, .place = take_place(to.size())};
  if (copy.place < 0) {
    CUDA_CHECK(cudaMemcpyAsync(to.data(), from, to.size(), cudaMemcpyDeviceToHost, stream_));
    CUDA_CHECK(cudaStreamSynchronize(stream_));
    return copy;
  }
  CopyPlace& place = places_[static_cast<size_t>(copy.place)];
  place.has_flag = cuda::is_small_copy(from, to.size());
  if (place.has_flag) {
    auto* const flag = reinterpret_cast<uint32_t*>(place.memory);
    std::atomic_ref<uint32_t>(*flag).store(0);
    cuda::publish_small(stream_, from, place.memory + kFlagBytes, to.size(), flag, 1);
  } else {
    CUDA_CHECK(cudaMemcpyAsync(place.memory + kFlagBytes, from, to.size(), cudaMemcpyDeviceToHost,
                               stream_));
    CUDA_CHECK(cudaEventRecord(place.done, stream_));
  }
  return copy;
}

void CudaDevice::finish(const HostCopy& copy) {
  if (copy.place < 0) return;
  CopyPlace& place = places_[static_cast<size_t>(copy.place)];
  if (place.has_flag) {
    const std::atomic_ref<uint32_t> arrived(*reinterpret_cast<uint32_t*>(place.memory));
    while (arrived.load(std::memory_order_acquire) == 0) check_running();
  } else {
    CUDA_CHECK(cudaEventSynchronize(place.done));
  }
  std::memcpy(copy.to.data(), place.memory + kFlagBytes, copy.to.size());
  const std::lock_guard lock(pinned_mutex_);
  place.taken = false;
}

// A failed kernel ends the program here instead of being waited for without end.
void CudaDevice::check_running() const {
  if (const cudaError_t status = cudaStreamQuery(stream_); status != cudaErrorNotReady)
    CUDA_CHECK(status);
}

void CudaDevice::zero(std::byte* at, int64_t bytes) {
  CUDA_CHECK(cudaMemsetAsync(at, 0, static_cast<size_t>(bytes), stream_));
}

Result<WeightMatrix> CudaDevice::make_weight(const WeightSpec& spec) {
  if (spec.format == WeightFormat::kF32 || spec.format == WeightFormat::kF16)
    return Error{ErrorCode::kUnsupported,
                 str_cat(weight_format_name(spec.format),
                         " matrices do not run on the GPU; convert the checkpoint to bf16")};
  TRY_ASSIGN(Buffer memory, allocate(cuda::tiled_bytes(spec)));
  return cuda::tiled_weight(spec, std::make_shared<const Buffer>(std::move(memory)));
}

int64_t CudaDevice::stored_weight_bytes(const WeightSpec& spec) const {
  return cuda::tiled_bytes(spec);
}

void CudaDevice::check_rows(const WeightMatrix& w, int64_t index, int64_t row_begin,
                            const WeightMatrix& rows) {
  CHECK(w.layout == cuda::kTiledLayout && rows.layout == WeightMatrix::kCanonical &&
            rows.format == w.format && rows.k == w.k && rows.count == 1 &&
            rows.zeros.defined() == w.zeros.defined(),
        "rows of another matrix");
  CHECK(row_begin % 128 == 0 && row_begin + rows.n <= w.n && index < w.count, "rows ", row_begin,
        " + ", rows.n, " of ", w.n);
}

std::unique_ptr<RowUploader> CudaDevice::make_row_uploader() {
  return std::make_unique<CudaRowUploader>(*this);
}

// The rows travel as they are and are packed by the GPU.
void CudaDevice::store_rows(WeightMatrix& w, int64_t index, int64_t row_begin,
                            const WeightMatrix& rows) {
  check_rows(w, index, row_begin, rows);
  const std::lock_guard lock(staging_mutex_);
  const Status room = reserve_staging(canonical_bytes(spec_of(rows)));
  CHECK(room.has_value(), "no GPU memory to pack weights: ", room.error().message);
  upload_rows(stream_, staging_.data(), w, index, row_begin, rows);
  CUDA_CHECK(
      cudaStreamSynchronize(stream_));  // the caller's rows and the staging area are free again
}

Status CudaDevice::reserve_staging(int64_t bytes) {
  if (staging_.bytes() >= bytes) return {};
  staging_ = Buffer();  // freed when what reads it is done
  TRY_ASSIGN(staging_, allocate(bytes));
  return {};
}

// Everything is on the one stream, so the next rows may be made in the same place at once.
Status CudaDevice::store_random_rows(WeightMatrix& w, int64_t index, int64_t row_begin,
                                     const RandomRows& random) {
  CHECK(w.layout == cuda::kTiledLayout && row_begin % 128 == 0 && row_begin + random.n <= w.n &&
            index < w.count,
        "rows ", row_begin, " + ", random.n, " of ", w.n);
  WeightSpec spec = spec_of(w);
  spec.n = random.n;
  spec.count = 1;
  const std::lock_guard lock(staging_mutex_);
  TRY(reserve_staging(canonical_bytes(spec)));
  const WeightMatrix rows = canonical_weight(spec, staging_.data());
  cuda::random_rows(stream_, rows, random);
  cuda::pack_rows(stream_, w, index, row_begin, rows);
  return {};
}

void CudaDevice::run_step(const void* owner, uint64_t key, const std::function<void()>& enqueue) {
  const auto [step, is_new] = steps_.try_emplace({owner, key}, nullptr);
  if (is_new) return enqueue();  // kernels are loaded now, and not during a capture
  if (step->second == nullptr) {
    cudaGraph_t graph = nullptr;
    CUDA_CHECK(cudaStreamBeginCapture(stream_, cudaStreamCaptureModeThreadLocal));
    enqueue();
    CUDA_CHECK(cudaStreamEndCapture(stream_, &graph));
    CUDA_CHECK(cudaGraphInstantiate(&step->second, graph, 0));
    CUDA_CHECK(cudaGraphDestroy(graph));
  }
  CUDA_CHECK(cudaGraphLaunch(step->second, stream_));
}

// A guess, not measured: a few dozen graphs of a few hundred kernels; a dozen kernels a pass.
int64_t CudaDevice::recorded_bytes(int64_t passes) const {
  return (int64_t{256} << 20) + passes * (int64_t{64} << 10);
}

void CudaDevice::forget_steps(const void* owner) {
  CUDA_CHECK(cudaStreamSynchronize(stream_));
  std::erase_if(steps_, [owner](const auto& step) {
    if (step.first.first != owner) return false;
    if (step.second != nullptr) cudaGraphExecDestroy(step.second);
    return true;
  });
}

int64_t CudaDevice::kv_page_bytes(KvFormat format, int64_t kv_heads, int64_t head_dim) const {
  CHECK(format == KvFormat::kBF16, "the GPU caches keys and values as bf16");
  return kv_heads * kPageTokens * head_dim * 2;
}

}  // namespace pewter
