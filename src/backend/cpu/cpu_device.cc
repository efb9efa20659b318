#include "backend/cpu/cpu_device.h"

#include <sys/mman.h>

#include "backend/cpu/panel.h"
#include "base/memory_info.h"
#include "tensor/formats/fp8_block128.h"

namespace pewter {
namespace {

constexpr int64_t kSmallPage = 4096, kHugePage = int64_t{2} << 20;
constexpr int64_t kChunk = 16 * kHugePage;
// Kernels ask for memory this far behind a matrix. It need not exist; it only keeps the address
// of such a request within the mapping.
constexpr int64_t kReadAhead = 4096;

}  // namespace

DeviceMemory CpuDevice::memory() const {
  return {.total = total_memory_bytes(), .free = available_memory_bytes()};
}

Result<Buffer> CpuDevice::allocate(int64_t bytes) {
  // Anonymous pages: zeroed by the kernel, only when touched. Huge ones where they fit: a stream of
  // weights misses the address cache at every small page, which costs up to a third of the
  // bandwidth on a virtual machine.
  const bool huge = bytes >= kHugePage;
  const int64_t size = std::max<int64_t>(bytes, 1), mapped = size + (huge ? kHugePage : 0);
  void* data = ::mmap(nullptr, static_cast<size_t>(mapped), PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (data == MAP_FAILED)
    return Error{
        ErrorCode::kResourceExhausted,
        str_cat("cannot allocate ", format_bytes(static_cast<double>(bytes)), " of host memory")};
  if (!huge)
    return Buffer(data, size, [](void* p, int64_t n) { ::munmap(p, static_cast<size_t>(n)); });
  // Aligned within the mapping; what is before and behind goes back.
  const auto address = reinterpret_cast<uintptr_t>(data);
  const uintptr_t aligned = (address + kHugePage - 1) / kHugePage * kHugePage;
  if (aligned > address) ::munmap(data, aligned - address);
  auto* start = reinterpret_cast<std::byte*>(aligned);
  const int64_t kept = mapped - static_cast<int64_t>(aligned - address);
  const int64_t pages = (size + kSmallPage - 1) / kSmallPage * kSmallPage;
  if (kept > pages) ::munmap(start + pages, static_cast<size_t>(kept - pages));
  ::madvise(start, static_cast<size_t>(size), MADV_HUGEPAGE);  // advice: may be refused
  return Buffer(start, size, [](void* p, int64_t n) { ::munmap(p, static_cast<size_t>(n)); });
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

int64_t CpuDevice::stored_weight_bytes(const WeightSpec& spec) const {
  return layout_ == Layout::kPanels && has_panels(spec) ? panel_bytes(spec) : weight_bytes(spec);
}

Result<WeightMatrix> CpuDevice::make_weight(const WeightSpec& spec) {
  if (layout_ == Layout::kCanonical || !has_panels(spec)) return make_canonical_weight(spec);
  const int64_t bytes = panel_bytes(spec);
  const std::lock_guard lock(mutex_);
  std::shared_ptr<const Buffer> storage;
  int64_t at = 0;
  if (bytes > kChunk / 2) {
    TRY_ASSIGN(Buffer buffer, allocate(bytes + kReadAhead));
    storage = std::make_shared<const Buffer>(std::move(buffer));
  } else {
    if (chunk_ == nullptr || chunk_used_ + bytes + kReadAhead > chunk_->bytes()) {
      TRY_ASSIGN(Buffer buffer, allocate(kChunk));
      chunk_ = std::make_shared<const Buffer>(std::move(buffer));
      chunk_used_ = 0;
    }
    storage = chunk_;
    at = chunk_used_;
    chunk_used_ += bytes;  // whole cache lines
  }
  WeightMatrix w = panel_matrix(spec, storage->data() + at);
  w.storage = std::move(storage);
  return w;
}

void CpuDevice::store_rows(WeightMatrix& w, int64_t index, int64_t row_begin,
                           const WeightMatrix& rows) {
  CHECK(rows.format == w.format && rows.k == w.k && rows.count == 1, "rows of another matrix");
  CHECK(row_begin % kFp8Block == 0 && row_begin + rows.n <= w.n && index < w.count, "rows ",
        row_begin, " + ", rows.n, " of ", w.n);
  if (w.layout == kPanelLayout) return store_panel_rows(w, index, row_begin, rows);
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
