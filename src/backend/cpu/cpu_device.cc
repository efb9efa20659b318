#include "backend/cpu/cpu_device.h"

#include <sys/mman.h>

#include "base/memory_info.h"
#include "tensor/formats/fp8_block128.h"

namespace pewter {

int64_t CpuDevice::available_bytes() const { return available_memory_bytes(); }

Result<Buffer> CpuDevice::allocate(int64_t bytes) {
  // Anonymous pages: zeroed by the kernel, only when touched.
  const int64_t size = std::max<int64_t>(bytes, 1);
  void* data = ::mmap(nullptr, static_cast<size_t>(size), PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (data == MAP_FAILED)
    return Error{
        ErrorCode::kResourceExhausted,
        str_cat("cannot allocate ", format_bytes(static_cast<double>(bytes)), " of host memory")};
  return Buffer(data, size, [](void* p, int64_t n) { ::munmap(p, static_cast<size_t>(n)); });
}

void CpuDevice::copy_to_device(std::byte* to, std::span<const std::byte> from) {
  if (!from.empty()) std::memcpy(to, from.data(), from.size());
}

void CpuDevice::copy_to_host(std::span<std::byte> to, const std::byte* from) {
  if (!to.empty()) std::memcpy(to.data(), from, to.size());
}

void CpuDevice::zero(std::byte* at, int64_t bytes) {
  std::memset(at, 0, static_cast<size_t>(bytes));
}

Result<WeightMatrix> CpuDevice::make_weight(const WeightSpec& spec) {
  return make_canonical_weight(spec);
}

void CpuDevice::store_rows(WeightMatrix& w, int64_t index, int64_t row_begin,
                           const WeightMatrix& rows) {
  CHECK(rows.format == w.format && rows.k == w.k && rows.count == 1, "rows of another matrix");
  CHECK(row_begin % kFp8Block == 0 && row_begin + rows.n <= w.n && index < w.count, "rows ",
        row_begin, " + ", rows.n, " of ", w.n);
  const auto copy = [](const TensorView& to, const TensorView& from) {
    std::memcpy(to.data(), from.data(), static_cast<size_t>(from.bytes()));
  };
  copy(w.values[index].slice(0, row_begin, row_begin + rows.n), rows.values[0]);
  if (w.format == WeightFormat::kFp8Block128) {
    const int64_t block = row_begin / kFp8Block;
    copy(w.scales[index].slice(0, block, block + rows.scales.dim(1)), rows.scales[0]);
  } else if (w.scales.defined()) {
    copy(w.scales[index].slice(0, row_begin, row_begin + rows.n), rows.scales[0]);
    if (w.zeros.defined())
      copy(w.zeros[index].slice(0, row_begin, row_begin + rows.n), rows.zeros[0]);
  }
}

int64_t CpuDevice::kv_page_bytes(KvFormat format, int64_t kv_heads, int64_t head_dim) const {
  const int64_t element = format == KvFormat::kF32 ? 4 : 2;
  return kv_heads * kPageTokens * head_dim * element;
}

}  // namespace pewter
