// Rows on their way to the GPU: from pinned host memory into a staging area, and from there packed
// into the tiled layout, all enqueued. Lanes take turns, each a stream with a staging area of its
// own, so that one copies while another packs.
#pragma once

#include <array>
#include <mutex>
#include <vector>

#include "backend/cuda/cuda_device.h"

namespace pewter {

// Enqueues the copy of rows to `staging`, canonical_bytes of device memory, and their packing.
void upload_rows(cudaStream_t stream, std::byte* staging, WeightMatrix& w, int64_t index,
                 int64_t row_begin, const WeightMatrix& rows);

class CudaRowUploader final : public RowUploader {
 public:
  explicit CudaRowUploader(CudaDevice& device);
  ~CudaRowUploader() override;  // waits for all of it

  Result<Buffer> allocate_host(int64_t bytes) override;
  Result<int64_t> begin(WeightMatrix& w, int64_t index, int64_t row_begin,
                        const WeightMatrix& rows) override;
  void finish(int64_t pending) override;

 private:
  struct Lane {
    cudaStream_t stream = nullptr;
    Buffer staging;
  };
  Status reserve(Lane& lane, int64_t bytes);

  CudaDevice& device_;
  std::mutex mutex_;  // guards what follows
  std::array<Lane, 4> lanes_;
  size_t next_lane_ = 0;
  cudaEvent_t zeroed_ = nullptr;  // memory allocated so far is
  std::vector<cudaEvent_t> events_;
  std::vector<int64_t> free_;  // events nothing waits for; result i + 1 is event i
};

}  // namespace pewter
