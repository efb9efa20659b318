#include "backend/device.h"

namespace pewter {
namespace {

class StoreAtOnce final : public RowUploader {
 public:
  explicit StoreAtOnce(Device& device) : device_(device) {}
  Result<Buffer> allocate_host(int64_t bytes) override { return Buffer::host(bytes); }
  Result<int64_t> begin(WeightMatrix& w, int64_t index, int64_t row_begin,
                        const WeightMatrix& rows) override {
    device_.store_rows(w, index, row_begin, rows);
    return int64_t{0};
  }
  void finish(int64_t) override {}

 private:
  Device& device_;
};

}  // namespace

std::unique_ptr<RowUploader> Device::make_row_uploader() {
  return std::make_unique<StoreAtOnce>(*this);
}

Status Device::store_random_rows(WeightMatrix& w, int64_t index, int64_t row_begin,
                                 const RandomRows& random) {
  WeightSpec spec = spec_of(w);
  spec.n = random.n;
  spec.count = 1;
  TRY_ASSIGN(const WeightMatrix rows, make_canonical_weight(spec));
  fill_random_rows(rows, random);
  store_rows(w, index, row_begin, rows);
  return {};
}

}  // namespace pewter
