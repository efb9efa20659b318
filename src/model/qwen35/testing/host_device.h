// The host as a device in canonical layout, for loading tests: no backend is linked.
#pragma once

#include <cstring>

#include "backend/device.h"

namespace pewter {

class HostDevice : public Device {
 public:
  explicit HostDevice(int64_t available = int64_t{1} << 40) : available_(available) {}

  std::string_view name() const override { return "host"; }
  DeviceMemory memory() const override { return {.total = available_, .free = available_}; }
  int64_t cache_bytes() const override { return 0; }
  Result<Buffer> allocate(int64_t bytes) override {
    TRY_ASSIGN(Buffer buffer, Buffer::host(bytes));
    zero(buffer.data(), bytes);
    return buffer;
  }
  void copy_to_device(std::byte* to, std::span<const std::byte> from) override {
    std::memcpy(to, from.data(), from.size());
  }
  void copy_to_host(std::span<std::byte> to, const std::byte* from) override {
    std::memcpy(to.data(), from, to.size());
  }
  void zero(std::byte* at, int64_t bytes) override {
    std::memset(at, 0, static_cast<size_t>(bytes));
  }
  Result<WeightMatrix> make_weight(const WeightSpec& spec) override {
    return make_canonical_weight(spec);
  }
  void store_rows(WeightMatrix& w, int64_t index, int64_t row_begin,
                  const WeightMatrix& rows) override {
    CHECK(rows.format == w.format && rows.k == w.k && row_begin % 128 == 0, "rows that do not fit");
    CHECK(rows.zeros.defined() == w.zeros.defined(), "zero points that do not fit");
    copy(w.values, rows.values, index, row_begin);
    const bool blocks = w.format == WeightFormat::kFp8Block128;
    if (w.scales.defined())
      copy(w.scales, rows.scales, index, blocks ? row_begin / 128 : row_begin);
    if (w.zeros.defined()) copy(w.zeros, rows.zeros, index, row_begin);
  }
  int64_t stored_weight_bytes(const WeightSpec& spec) const override { return weight_bytes(spec); }
  int64_t kv_page_bytes(KvFormat, int64_t, int64_t) const override { return 0; }

 private:
  static void copy(const TensorView& to, const TensorView& from, int64_t index, int64_t begin) {
    CHECK(to.dtype() == from.dtype(), "types that do not fit");
    std::memcpy(to[index].slice(0, begin, begin + from.dim(1)).data(), from.data(),
                static_cast<size_t>(from.bytes()));
  }
  int64_t available_;
};

}  // namespace pewter
