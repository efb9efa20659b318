#include "backend/cuda/cuda_row_uploader.h"

#include <cstdlib>

#include "backend/cuda/common/cuda_check.h"
#include "backend/cuda/linear/weight_store.h"

namespace pewter {

void upload_rows(cudaStream_t stream, std::byte* staging, WeightMatrix& w, int64_t index,
                 int64_t row_begin, const WeightMatrix& rows) {
  const WeightMatrix on_device = canonical_weight(spec_of(rows), staging);
  for (const auto& [to, from] :
       {std::pair(on_device.values, rows.values), std::pair(on_device.scales, rows.scales),
        std::pair(on_device.zeros, rows.zeros)})
    if (from.defined())
      CUDA_CHECK(cudaMemcpyAsync(to.data(), from.data(), static_cast<size_t>(from.bytes()),
                                 cudaMemcpyHostToDevice, stream));
  cuda::pack_rows(stream, w, index, row_begin, on_device);
}

CudaRowUploader::CudaRowUploader(CudaDevice& device) : device_(device) {
  for (Lane& lane : lanes_)
    CUDA_CHECK(cudaStreamCreateWithFlags(&lane.stream, cudaStreamNonBlocking));
  CUDA_CHECK(cudaEventCreateWithFlags(&zeroed_, cudaEventDisableTiming));
}

CudaRowUploader::~CudaRowUploader() {
  for (Lane& lane : lanes_) {
    CUDA_CHECK(cudaStreamSynchronize(lane.stream));
    CUDA_CHECK(cudaStreamDestroy(lane.stream));
  }
  CUDA_CHECK(cudaEventDestroy(zeroed_));
  for (const cudaEvent_t event : events_) CUDA_CHECK(cudaEventDestroy(event));
}

// Ordinary memory, pinned afterwards: direct I/O into it works on every kernel. Where pinning is
// refused it still serves; copies from it are slower and block.
Result<Buffer> CudaRowUploader::allocate_host(int64_t bytes) {
  TRY_ASSIGN(Buffer memory, Buffer::host(bytes));
  if (cudaHostRegister(memory.data(), static_cast<size_t>(memory.bytes()),
                       cudaHostRegisterDefault) != cudaSuccess) {
    cudaGetLastError();  // not sticky: forget it
    return memory;
  }
  struct Pinned {
    static void release(void* data, int64_t) {
      cudaHostUnregister(data);
      std::free(data);  // as Buffer::host made it
    }
  };
  return std::move(memory).with_release(Pinned::release);
}

Status CudaRowUploader::reserve(Lane& lane, int64_t bytes) {
  if (lane.staging.bytes() >= bytes) return {};
  CUDA_CHECK(cudaStreamSynchronize(lane.stream));
  lane.staging = Buffer();
  TRY_ASSIGN(lane.staging, device_.allocate(bytes));
  return {};
}

Result<int64_t> CudaRowUploader::begin(WeightMatrix& w, int64_t index, int64_t row_begin,
                                       const WeightMatrix& rows) {
  CudaDevice::check_rows(w, index, row_begin, rows);
  const std::lock_guard lock(mutex_);
  Lane& lane = lanes_[next_lane_++ % lanes_.size()];
  TRY(reserve(lane, canonical_bytes(spec_of(rows))));
  CUDA_CHECK(cudaEventRecord(zeroed_, device_.stream()));
  CUDA_CHECK(cudaStreamWaitEvent(lane.stream, zeroed_, 0));
  upload_rows(lane.stream, lane.staging.data(), w, index, row_begin, rows);
  if (free_.empty()) {
    cudaEvent_t event = nullptr;
    CUDA_CHECK(cudaEventCreateWithFlags(&event, cudaEventDisableTiming | cudaEventBlockingSync));
    events_.push_back(event);
    free_.push_back(static_cast<int64_t>(events_.size()) - 1);
  }
  const int64_t taken = free_.back();
  free_.pop_back();
  CUDA_CHECK(cudaEventRecord(events_[static_cast<size_t>(taken)], lane.stream));
  return taken + 1;
}

void CudaRowUploader::finish(int64_t pending) {
  if (pending == 0) return;
  cudaEvent_t event = nullptr;
  {
    const std::lock_guard lock(mutex_);
    event = events_[static_cast<size_t>(pending - 1)];
  }
  CUDA_CHECK(cudaEventSynchronize(event));
  const std::lock_guard lock(mutex_);
  free_.push_back(pending - 1);
}

}  // namespace pewter
