// The host as a device: memory is host memory. Weights lie in panels (panel.h) for CpuOps, or stay
// canonical for the reference.
#pragma once

#include <mutex>

#include "backend/device.h"
#include "base/memory_info.h"

namespace pewter {

class CpuDevice final : public Device {
 public:
  enum class Layout { kCanonical, kPanels };
  explicit CpuDevice(Layout layout) : layout_(layout) {}

  std::string_view name() const override { return "cpu"; }
  DeviceMemory memory() const override;
  int64_t cache_bytes() const override { return last_level_cache_bytes(); }
  Result<Buffer> allocate(int64_t bytes) override;
  void copy_to_device(std::byte* to, std::span<const std::byte> from) override;
  void copy_to_host(std::span<std::byte> to, const std::byte* from) override;
  void zero(std::byte* at, int64_t bytes) override;
  Result<WeightMatrix> make_weight(const WeightSpec& spec) override;
  void store_rows(WeightMatrix& w, int64_t index, int64_t row_begin,
                  const WeightMatrix& rows) override;
  int64_t stored_weight_bytes(const WeightSpec& spec) const override;
  int64_t kv_page_bytes(KvFormat format, int64_t kv_heads, int64_t head_dim) const override;

 private:
  Layout layout_;
  // Matrices smaller than a chunk are cut from one, so that they too lie in huge pages.
  std::mutex mutex_;
  std::shared_ptr<const Buffer> chunk_;
  int64_t chunk_used_ = 0;
};

}  // namespace pewter
