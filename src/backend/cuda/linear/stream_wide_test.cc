// The product of many rows against its twin, bit for bit: every format and output, numbers of rows
// on both sides of each kernel's, matrices of one unit and of several rounds, whole sums and
// slices.

#include "backend/cuda/linear/stream_wide.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <vector>

#include "backend/cuda/cuda_device.h"
#include "backend/cuda/linear/coded_rows.h"
#include "base/rng.h"

namespace pewter::cuda {
namespace {

constexpr int kMostRows = 64;
constexpr WeightFormat kBf16 = WeightFormat::kBF16, kF8 = WeightFormat::kFp8Block128,
                       kI4 = WeightFormat::kInt4Group128, kI8 = WeightFormat::kInt8Row;

struct WideCase {
  std::string name;
  std::vector<WeightSpec> w;  // side by side; kGatedBF16: gate, up
  StreamOutput output = StreamOutput::kBF16;
  bool is_long = false;   // summed in slices, when it may
  bool gathered = false;  // rows in another order
};

class StreamWide : public testing::TestWithParam<WideCase> {
 protected:
  void SetUp() override {
    Result<std::shared_ptr<CudaDevice>> device = CudaDevice::make();
    if (!device) GTEST_SKIP() << device.error().message;
    device_ = *device;
    make_inputs();
  }

  std::byte* memory(int64_t bytes) {
    buffers_.push_back(device_->allocate(bytes).value());
    return buffers_.back().data();
  }
  template <typename T>
  T* copied(const std::vector<T>& values) {
    std::byte* const to = memory(static_cast<int64_t>(values.size() * sizeof(T)));
    device_->copy_to_device(to, std::as_bytes(std::span(values)));
    return reinterpret_cast<T*>(to);
  }
  const WeightMatrix& weight(const WeightSpec& spec, uint64_t seed) {
    WeightMatrix rows = make_canonical_weight(spec).value();
    WeightMatrix some = rows;  // what random rows fill
    some.zeros = {};
    fill_random_rows(some, {.n = spec.n, .deviation = 0.03f, .seed = seed});
    // In some outputs of int4 all codes are the smallest, or the largest.
    if (spec.format == kI4)
      for (int64_t n = 0; n < std::min<int64_t>(spec.n, 32); ++n)
        if (n % 4 < 2)
          std::fill_n(rows.values.data() + n * spec.k / 2, spec.k / 2,
                      n % 4 == 0 ? std::byte{0} : std::byte{0xFF});
    if (spec.has_zeros)
      for (int64_t i = 0; i < rows.zeros.elements(); ++i)
        rows.zeros.data_as<uint8_t>()[i] =
            static_cast<uint8_t>(random_bits(seed + 1, static_cast<uint64_t>(i)) & 15u);
    weights_.push_back(device_->make_weight(spec).value());
    device_->store_rows(weights_.back(), 0, 0, rows);
    return weights_.back();
  }

  void make_inputs() {
    const WideCase& tested = GetParam();
    const bool gated = tested.output == StreamOutput::kGatedBF16;
    const auto k = static_cast<int>(tested.w[0].k);
    weights_.reserve(tested.w.size());
    int64_t column = 0;
    for (const WeightSpec& spec : tested.w) {
      args_.w[args_.stacks++] = stack_of(weight(spec, 11 + static_cast<uint64_t>(column)), column);
      column += gated ? 0 : spec.n;
    }
    outputs_ = gated ? tested.w[0].n : column;
    Rng rng(5);
    std::vector<BFloat16> x(static_cast<size_t>(kMostRows * k));
    // Some inputs are far larger than their neighbours: coded rows then need their low bytes.
    for (BFloat16& v : x) v = to_bfloat16(rng.normal() * (rng.below(50) == 0 ? 40.0f : 1.0f));
    // In some rows all integers are as large as they get, so that their sums are.
    for (int i = 0; i < k; ++i) {
      x[static_cast<size_t>(1 * k + i)] = to_bfloat16(255.0f / 128);
      x[static_cast<size_t>(2 * k + i)] = to_bfloat16(-255.0f / 128);
      x[static_cast<size_t>(35 * k + i)] = to_bfloat16(i % 3 == 0 ? 255.0f / 128 : -255.0f / 128);
      x[static_cast<size_t>(4 * k + i)] = to_bfloat16(0.0f);
    }
    args_.x = reinterpret_cast<const __nv_bfloat16*>(copied(x));
    args_.x_stride = args_.k = k;
    if (tested.gathered) {
      std::vector<int32_t> order(kMostRows);
      for (int r = 0; r < kMostRows; ++r) order[static_cast<size_t>(r)] = (r * 37 + 5) % kMostRows;
      args_.x_rows = copied(order);
    }
    args_.output = tested.output;
    args_.out_stride = outputs_ + 3;
    args_.out = memory(kMostRows * args_.out_stride * 4);
    for (int64_t i = 0; i < kMostRows * outputs_; ++i) residual_.push_back(rng.normal());
    args_.residual = copied(residual_);
    args_.residual_stride = outputs_;
    args_.claims = reinterpret_cast<int32_t*>(memory(8));
    args_.codes = reinterpret_cast<uint8_t*>(memory(kMostRows * coded_row_bytes(k)));
    halves_ = reinterpret_cast<uint8_t*>(memory(kMostRows * coded_row_bytes(k)));
    for (const bool halves : {false, true})
      code_rows(device_->stream(), {.x = args_.x,
                                    .x_stride = args_.x_stride,
                                    .x_rows = args_.x_rows,
                                    .rows = kMostRows,
                                    .k = k,
                                    .halves = halves,
                                    .codes = halves ? halves_ : args_.codes});
    args_.has_codes = true;
    partial_bytes_ = kWideSlices * kMostRows * round_up(outputs_, 16) * 4;
    partials_ = memory(partial_bytes_);
    ASSERT_TRUE(can_widen(args_));
  }

  struct Results {
    std::vector<uint32_t> out, residual;  // as bits
    bool operator==(const Results&) const = default;
  };
  template <typename Product>
  Results run(int rows, const Product& product) {
    StreamArgs args = args_;
    args.rows = rows;
    Results results;
    // Ones everywhere are no finite number.
    results.out.assign(static_cast<size_t>(kMostRows * args.out_stride), ~0u);
    results.residual.resize(residual_.size());
    device_->copy_to_device(static_cast<std::byte*>(args.out),
                            std::as_bytes(std::span(results.out)));
    device_->copy_to_device(reinterpret_cast<std::byte*>(args.residual),
                            std::as_bytes(std::span(residual_)));
    product(args);
    device_->copy_to_host(std::as_writable_bytes(std::span(results.out)),
                          static_cast<const std::byte*>(args.out));
    device_->copy_to_host(std::as_writable_bytes(std::span(results.residual)),
                          reinterpret_cast<const std::byte*>(args.residual));
    return results;
  }
  // The rows behind the first `begin`.
  static StreamArgs behind(StreamArgs args, int begin, int rows) {
    const bool is_half =
        args.output == StreamOutput::kBF16 || args.output == StreamOutput::kGatedBF16;
    if (args.x_rows != nullptr)
      args.x_rows += begin;
    else
      args.x += begin * args.x_stride;
    args.codes += begin * coded_row_bytes(args.k);
    args.out = static_cast<std::byte*>(args.out) + begin * args.out_stride * (is_half ? 2 : 4);
    args.residual += begin * args.residual_stride;
    args.rows = rows;
    return args;
  }
  // Whether the last product left slices, which are forgotten.
  bool has_partials() {
    std::vector<std::byte> bytes(static_cast<size_t>(partial_bytes_));
    device_->copy_to_host(bytes, partials_);
    device_->zero(partials_, partial_bytes_);
    return std::any_of(bytes.begin(), bytes.end(), [](std::byte b) { return b != std::byte{}; });
  }

  std::shared_ptr<CudaDevice> device_;
  std::vector<Buffer> buffers_;
  std::vector<WeightMatrix> weights_;
  std::vector<float> residual_;
  StreamArgs args_;
  uint8_t* halves_ = nullptr;
  std::byte* partials_ = nullptr;
  int64_t outputs_ = 0, partial_bytes_ = 0;
};

TEST_P(StreamWide, HasItsTwinsBits) {
  const Gpu& gpu = device_->gpu();
  for (const int rows : {5, 8, 9, 16, 17, 32, 33, 64}) {
    const Results want =
        run(rows, [&](const StreamArgs& args) { stream_narrow(device_->stream(), gpu, args); });
    StreamArgs asked = args_;
    asked.rows = rows;
    for (const bool halves : {false, true})
      for (const bool splits : {false, true}) {
        if (halves && !wants_halves(gpu, asked)) continue;
        const Results have = run(rows, [&](StreamArgs args) {
          args.halves = halves;
          if (halves) args.codes = halves_;
          if (splits) args.partials = reinterpret_cast<float*>(partials_);
          args.partial_outputs = round_up(outputs_, 16);
          constexpr int most = kMostWideRows;
          args.rows = std::min(rows, most);
          stream_wide(device_->stream(), gpu, args);
          if (rows > most) stream_wide(device_->stream(), gpu, behind(args, most, rows - most));
        });
        EXPECT_TRUE(have == want) << rows << " rows" << (halves ? ", halves" : "")
                                  << (splits ? ", slices" : "");
        const bool in_slices = has_partials();
        EXPECT_FALSE(in_slices && !splits) << rows << " rows";
        EXPECT_TRUE(in_slices || !splits || !GetParam().is_long) << rows << " rows";
      }
  }
}

// A row's bits are its own: the same beside four rows and beside a hundred, whichever kernels those
// take.
TEST_P(StreamWide, RowsKeepTheirBits) {
  const Gpu& gpu = device_->gpu();
  const auto product = [&](const StreamArgs& args) {
    stream_product(device_->stream(), gpu, args);
  };
  const Results all = run(kMostRows, product);
  const bool halves =
      args_.output == StreamOutput::kBF16 || args_.output == StreamOutput::kGatedBF16;
  for (const int rows : {1, 4, 5, 12, 24, 40}) {
    const Results some = run(rows, product);
    const size_t bytes = static_cast<size_t>(rows * args_.out_stride * (halves ? 2 : 4));
    EXPECT_EQ(std::memcmp(some.out.data(), all.out.data(), bytes), 0) << rows << " rows";
    EXPECT_EQ(std::memcmp(some.residual.data(), all.residual.data(),
                          static_cast<size_t>(rows * outputs_) * 4),
              0)
        << rows << " rows";
  }
}

constexpr DType kHalf = DType::kF16, kBrain = DType::kBF16, kFull = DType::kF32;
const std::vector<WideCase> kCases = {
    {"bf16_small", {{.format = kBf16, .n = 7, .k = 144}}},
    {"bf16", {{.format = kBf16, .n = 203, .k = 1032}}, StreamOutput::kF32},
    {"bf16_wide", {{.format = kBf16, .n = 40000, .k = 192}}, StreamOutput::kF32},
    {"bf16_long", {{.format = kBf16, .n = 1030, .k = 8192}}, StreamOutput::kAddF32, true},
    {"fp8_small", {{.format = kF8, .n = 48, .k = 40, .scale_dtype = kBrain}}},
    {"fp8", {{.format = kF8, .n = 210, .k = 1160, .scale_dtype = kFull}}, StreamOutput::kF32},
    {"fp8_wide", {{.format = kF8, .n = 30100, .k = 384, .scale_dtype = kFull}}},
    {"fp8_long",
     {{.format = kF8, .n = 1030, .k = 8192, .scale_dtype = kBrain}},
     StreamOutput::kAddF32,
     true},
    {"int8_small", {{.format = kI8, .n = 3, .k = 24}}, StreamOutput::kF32},
    {"int8_head", {{.format = kI8, .n = 30011, .k = 1024}}, StreamOutput::kF32, false, true},
    {"int4_small", {{.format = kI4, .n = 33, .k = 128, .scale_dtype = kHalf}}},
    {"int4", {{.format = kI4, .n = 20480, .k = 3072, .scale_dtype = kBrain}}},
    {"int4_wide", {{.format = kI4, .n = 45000, .k = 384, .scale_dtype = kHalf}}},
    {"int4_long",
     {{.format = kI4, .n = 3072, .k = 8192, .scale_dtype = kHalf}},
     StreamOutput::kAddF32,
     true},
    {"int4_zeros",
     {{.format = kI4, .n = 900, .k = 2304, .scale_dtype = kHalf, .has_zeros = true}},
     StreamOutput::kF32},
    {"int4_full",
     {{.format = kI4, .n = 4100, .k = 384, .scale_dtype = kFull, .has_zeros = true}},
     StreamOutput::kAddF32},
    {"delta",
     {{.format = kI4, .n = 12288, .k = 3072, .scale_dtype = kHalf},
      {.format = kI4, .n = 8192, .k = 3072, .scale_dtype = kHalf},
      {.format = kBf16, .n = 64, .k = 3072},
      {.format = kBf16, .n = 64, .k = 3072}}},
    {"mixed",
     {{.format = kF8, .n = 210, .k = 1024, .scale_dtype = kBrain},
      {.format = kI8, .n = 500, .k = 1024},
      {.format = kI4, .n = 100, .k = 1024, .scale_dtype = kBrain},
      {.format = kBf16, .n = 5, .k = 1024}},
     StreamOutput::kF32,
     false,
     true},
    {"gated_bf16",
     {{.format = kBf16, .n = 300, .k = 512}, {.format = kBf16, .n = 300, .k = 512}},
     StreamOutput::kGatedBF16},
    {"gated_fp8",
     {{.format = kF8, .n = 130, .k = 1160, .scale_dtype = kFull},
      {.format = kF8, .n = 130, .k = 1160, .scale_dtype = kFull}},
     StreamOutput::kGatedBF16},
    {"gated_int4",
     {{.format = kI4, .n = 17408, .k = 1024, .scale_dtype = kHalf},
      {.format = kI4, .n = 17408, .k = 1024, .scale_dtype = kHalf}},
     StreamOutput::kGatedBF16},
};
INSTANTIATE_TEST_SUITE_P(Cuda, StreamWide, testing::ValuesIn(kCases),
                         [](const auto& tested) { return tested.param.name; });

}  // namespace
}  // namespace pewter::cuda
