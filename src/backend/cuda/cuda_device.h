// The GPU as a device: memory, copies on the step's stream, and weights in the tiled layout.
#pragma once

#include <cuda_runtime_api.h>

#include <array>
#include <map>
#include <mutex>

#include "backend/cuda/common/gpu.h"
#include "backend/device.h"

namespace pewter {

class CudaDevice final : public Device {
 public:
  // Errors: kUnavailable when there is no GPU or driver, or a GPU older than compute
  // capability 8.0.
  static Result<std::shared_ptr<CudaDevice>> make();
  ~CudaDevice() override;

  std::string_view name() const override { return "cuda"; }
  DeviceMemory memory() const override;
  int64_t cache_bytes() const override { return cache_bytes_; }
  Result<Buffer> allocate(int64_t bytes) override;
  void copy_to_device(std::byte* to, std::span<const std::byte> from) override;
  void copy_to_host(std::span<std::byte> to, const std::byte* from) override;
  HostCopy begin_copy_to_host(std::span<std::byte> to, const std::byte* from) override;
  void finish(const HostCopy& copy) override;
  bool is_asynchronous() const override { return true; }
  void zero(std::byte* at, int64_t bytes) override;
  // Error: kUnsupported for F32 and F16 matrices.
  Result<WeightMatrix> make_weight(const WeightSpec& spec) override;
  void store_rows(WeightMatrix& w, int64_t index, int64_t row_begin,
                  const WeightMatrix& rows) override;
  std::unique_ptr<RowUploader> make_row_uploader() override;
  Status store_random_rows(WeightMatrix& w, int64_t index, int64_t row_begin,
                           const RandomRows& random) override;
  int64_t stored_weight_bytes(const WeightSpec& spec) const override;
  int64_t kv_page_bytes(KvFormat format, int64_t kv_heads, int64_t head_dim) const override;

  // The first time a step runs as it comes, the second time it is captured as a graph.
  void run_step(const void* owner, uint64_t key, const std::function<void()>& enqueue) override;
  void forget_steps(const void* owner) override;
  int64_t recorded_bytes(int64_t passes) const override;

  // CHECKs what store_rows is given.
  static void check_rows(const WeightMatrix& w, int64_t index, int64_t row_begin,
                         const WeightMatrix& rows);

  cudaStream_t stream() const { return stream_; }
  const cuda::Gpu& gpu() const { return gpu_; }
  // "NVIDIA H200, compute capability 9.0"
  const std::string& description() const { return description_; }

 private:
  CudaDevice() = default;
  // A place in pinned memory for a copy that is enqueued at once; null when it is too large. Its
  // lock is held as long as the place is used.
  std::byte* pinned(size_t bytes);
  void check_running() const;
  // Makes staging_ at least so large; its lock is held.
  Status reserve_staging(int64_t bytes);
  cudaStream_t stream_ = nullptr;
  cuda::Gpu gpu_;
  int64_t cache_bytes_ = 0;
  bool unified_ = false;
  std::map<std::pair<const void*, uint64_t>, cudaGraphExec_t> steps_;  // null: seen once
  std::mutex pinned_mutex_;
  std::byte* pinned_ = nullptr;  // a ring: what is in it was enqueued on the stream
  size_t pinned_used_ = 0;
  // Copies to the host have places of their own, until they are finished.
  static constexpr int kCopyPlaces = 4;
  struct CopyPlace {
    std::byte* memory = nullptr;  // pinned: a flag, then the bytes
    cudaEvent_t done = nullptr;   // of copies without a flag
    bool taken = false, has_flag = false;
  };
  int take_place(size_t bytes);  // -1: none is free, or large enough; its lock is held
  std::array<CopyPlace, kCopyPlaces> places_;
  std::mutex staging_mutex_;
  Buffer staging_;  // canonical rows on their way into the tiled layout
  std::string description_;
};

}  // namespace pewter
