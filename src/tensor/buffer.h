// Buffer owns a block of memory, on the host or on a device, and frees it the way it was made.
#pragma once

#include <cstdlib>
#include <cstring>
#include <utility>

#include "base/result.h"

namespace pewter {

class Buffer {
 public:
  using Release = void (*)(void* data, int64_t bytes);

  Buffer() = default;
  Buffer(void* data, int64_t bytes, Release release)
      : data_(static_cast<std::byte*>(data)), bytes_(bytes), release_(release) {}
  Buffer(Buffer&& other) noexcept { *this = std::move(other); }
  Buffer& operator=(Buffer&& other) noexcept {
    std::swap(data_, other.data_);
    std::swap(bytes_, other.bytes_);
    std::swap(release_, other.release_);
    return *this;
  }
  ~Buffer() {
    if (data_ != nullptr) release_(data_, bytes_);
  }

  // The same memory, freed another way.
  Buffer with_release(Release release) && {
    release_ = release;
    return std::move(*this);
  }

  std::byte* data() const { return data_; }
  int64_t bytes() const { return bytes_; }

  // Host memory aligned for direct I/O and any vector register; contents undefined. An error when
  // there is none.
  static Result<Buffer> host(int64_t bytes) {
    constexpr size_t kAlignment = 4096;
    const size_t rounded = (static_cast<size_t>(bytes) + kAlignment) / kAlignment * kAlignment;
    void* data = std::aligned_alloc(kAlignment, rounded);
    if (data == nullptr)
      return Error{ErrorCode::kResourceExhausted, str_cat("cannot allocate ", bytes, " bytes")};
    return Buffer(data, bytes, [](void* p, int64_t) { std::free(p); });
  }

 private:
  std::byte* data_ = nullptr;
  int64_t bytes_ = 0;
  Release release_ = nullptr;
};

}  // namespace pewter
