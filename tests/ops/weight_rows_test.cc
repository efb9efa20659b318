// Rows on their way to a device: random ones it makes itself, and those of an uploader, are the
// ones store_rows stores.

#include "backend/factory.h"
#include "ops/op_rig.h"

namespace pewter::test {
namespace {

constexpr int64_t kRows = 300, kSecond = 256;  // stored in two blocks

class WeightRows : public OpTest<WeightSpec> {
 protected:
  void prepare() override {
    backend_ = make_backend({.device = target() == Target::kCuda ? "cuda" : "cpu"}).value();
  }
  // What lies in the device's memory of a matrix, scales and all.
  std::vector<std::byte> bytes_of(const WeightMatrix& w) const {
    std::vector<std::byte> bytes(static_cast<size_t>(device().stored_weight_bytes(spec_of(w))));
    device().copy_to_host(bytes, w.values.data());
    return bytes;
  }
  Device& device() const { return *backend_.device; }
  static RandomRows random(int64_t row) {
    return {.n = row < kSecond ? kSecond : kRows - kSecond,
            .deviation = 0.125f,
            .seed = static_cast<uint64_t>(7 + row)};
  }
  WeightSpec rows_spec(int64_t row) const {
    WeightSpec spec = tested();
    spec.n = random(row).n;
    spec.count = 1;
    return spec;
  }

 private:
  Backend backend_;
};

TEST_P(WeightRows, AreTheHostsBits) {
  WeightMatrix made = device().make_weight(tested()).value();
  WeightMatrix stored = device().make_weight(tested()).value();
  for (int64_t index = 0; index < tested().count; ++index)
    for (const int64_t row : {int64_t{0}, kSecond}) {
      ASSERT_TRUE(device().store_random_rows(made, index, row, random(row)));
      const WeightMatrix rows = make_canonical_weight(rows_spec(row)).value();
      fill_random_rows(rows, random(row));
      device().store_rows(stored, index, row, rows);
    }
  const std::vector<std::byte> bytes = bytes_of(made);
  EXPECT_EQ(bytes, bytes_of(stored));
  EXPECT_GT(std::ranges::count_if(bytes, [](std::byte b) { return b != std::byte{0}; }),
            static_cast<int64_t>(bytes.size() / 2));
}

// All blocks under way at once, several times, so that lanes and events come round; finished in
// another order than begun.
TEST_P(WeightRows, ArriveByAnUploader) {
  WeightMatrix sent = device().make_weight(tested()).value();
  WeightMatrix made = device().make_weight(tested()).value();
  const std::unique_ptr<RowUploader> uploader = device().make_row_uploader();
  for (int round = 0; round < 3; ++round) {
    std::vector<Buffer> buffers;
    std::vector<int64_t> pending;
    for (int64_t index = 0; index < tested().count; ++index)
      for (const int64_t row : {int64_t{0}, kSecond}) {
        const WeightSpec spec = rows_spec(row);
        buffers.push_back(uploader->allocate_host(canonical_bytes(spec)).value());
        const WeightMatrix rows = canonical_weight(spec, buffers.back().data());
        fill_random_rows(rows, random(row + round));
        pending.push_back(uploader->begin(sent, index, row, rows).value());
        ASSERT_TRUE(device().store_random_rows(made, index, row, random(row + round)));
      }
    for (auto p = pending.rbegin(); p != pending.rend(); ++p) uploader->finish(*p);
    EXPECT_EQ(bytes_of(sent), bytes_of(made)) << "round " << round;
  }
}

WeightSpec spec(WeightFormat format, DType scale_dtype = DType::kF32) {
  return {.format = format, .n = kRows, .k = 384, .count = 2, .scale_dtype = scale_dtype};
}
const std::vector<WeightSpec> kSpecs = {spec(WeightFormat::kBF16),
                                        spec(WeightFormat::kInt8Row),
                                        spec(WeightFormat::kFp8Block128, DType::kBF16),
                                        spec(WeightFormat::kFp8Block128),
                                        spec(WeightFormat::kInt4Group128, DType::kF16),
                                        spec(WeightFormat::kInt4Group128, DType::kBF16)};
const auto kName = [](const auto& tested) {
  const WeightSpec& s = std::get<1>(tested.param);
  return str_cat(weight_format_name(s.format), "_", dtype_name(s.scale_dtype));
};
INSTANTIATE_TEST_SUITE_P(Cpu, WeightRows,
                         testing::Combine(testing::Values(Target::kCpu), testing::ValuesIn(kSpecs)),
                         kName);
INSTANTIATE_TEST_SUITE_P(Cuda, WeightRows,
                         testing::Combine(testing::ValuesIn(cuda_target()),
                                          testing::ValuesIn(kSpecs)),
                         kName);

}  // namespace
}  // namespace pewter::test
