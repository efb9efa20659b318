#include "cli/product_timer.h"

#include <algorithm>
#include <cmath>
#include <mutex>

#include "backend/op_bytes.h"
#include "model/qwen35/model.h"

namespace pewter {
namespace {

constexpr ProductFormat kFormats[] = {
    {"bf16", {.format = WeightFormat::kBF16}},
    {"fp8", {.format = WeightFormat::kFp8Block128, .scale_dtype = DType::kBF16}},
    {"int4", {.format = WeightFormat::kInt4Group128, .scale_dtype = DType::kF16}},
    {"int8", {.format = WeightFormat::kInt8Row}},
};
// The copies together are this many times as large as the cache.
constexpr int64_t kCopiesMultiple = 4;
// Rows made at a time, a multiple of what store_random_rows wants.
constexpr int64_t kRowsAtATime = 4096;

}  // namespace

std::vector<ProductShape> product_shapes(const ModelConfig& c) {
  const int64_t hidden = c.hidden_size, values = c.value_heads * c.value_dim;
  std::vector<ProductShape> shapes = {{"delta_in", c.delta_channels() + values, hidden},
                                      {"delta_out", hidden, values},
                                      {"attention_in", c.attention_in_width(), hidden},
                                      {"attention_out", hidden, c.query_heads * c.head_dim}};
  if (!c.is_moe()) {
    shapes.push_back({"mlp_up", 2 * c.intermediate_size, hidden});
    shapes.push_back({"mlp_down", hidden, c.intermediate_size});
  }
  shapes.push_back({"head", c.vocab_size, hidden});
  return shapes;
}

std::span<const ProductFormat> product_formats() { return kFormats; }

Result<ProductTimer> ProductTimer::make(const BackendOptions& options, const ModelConfig& config,
                                        int64_t most_rows) {
  TRY_ASSIGN(Backend backend, make_backend(options));
  Qwen35Model sizes;
  sizes.config = config;
  TRY(backend.ops->reserve(sizes.limits(most_rows, 1, most_rows)));
  TRY_ASSIGN(OpTimer timer, OpTimer::make(*backend.device));
  return ProductTimer(std::move(backend), std::move(timer),
                      std::make_unique<ThreadPool>(options.threads), most_rows);
}

Status ProductTimer::load(const ProductShape& shape, const WeightSpec& format) {
  Device& device = *backend_.device;
  WeightSpec spec = format;
  spec.n = shape.n;
  spec.k = shape.k;
  name_ = shape.name;
  copies_.clear();
  const int64_t bytes = weight_bytes(spec);
  const int64_t count =
      std::max<int64_t>(1, (kCopiesMultiple * device.cache_bytes() + bytes - 1) / bytes);
  const float deviation = 1.0f / std::sqrt(static_cast<float>(shape.k));
  for (int64_t i = 0; i < count; ++i) {
    TRY_ASSIGN(WeightMatrix w, device.make_weight(spec));
    copies_.push_back(std::move(w));
  }
  std::mutex mutex;
  Status first_error;
  pool_->parallel_for(count, [&](int64_t i) {
    for (int64_t row = 0; row < shape.n; row += kRowsAtATime) {
      const Status made =
          device.store_random_rows(copies_[static_cast<size_t>(i)], 0, row,
                                   {.n = std::min(kRowsAtATime, shape.n - row),
                                    .deviation = deviation,
                                    .seed = static_cast<uint64_t>(i * shape.n + row)});
      const std::lock_guard lock(mutex);
      if (!made) first_error = made;
    }
  });
  TRY(first_error);
  const int64_t element = dtype_bytes(backend_.ops->activation_dtype());
  TRY_ASSIGN(x_, device.allocate(most_rows_ * shape.k * element));
  TRY_ASSIGN(partial_, device.allocate(most_rows_ * shape.n * 4));
  TRY_ASSIGN(residual_, device.allocate(most_rows_ * shape.n * 4));
  std::vector<std::byte> x(static_cast<size_t>(x_.bytes()));
  for (int64_t i = 0; i < most_rows_ * shape.k; ++i)
    store_float(x.data(), backend_.ops->activation_dtype(), i,
                random_unit(random_bits(1, static_cast<uint64_t>(i))));
  device.copy_to_device(x_.data(), x);
  return {};
}

StageTime ProductTimer::time(int64_t rows) {
  const WeightMatrix& first = copies_[0];
  const TensorView x(x_.data(), backend_.ops->activation_dtype(), {rows, first.k});
  const TensorView partial(partial_.data(), DType::kF32, {rows, first.n});
  const TensorView residual(residual_.data(), DType::kF32, {rows, first.n});
  const auto args = [&](const WeightMatrix& w) -> LinearAddArgs {
    return {.x = x, .w = w, .partial = partial, .residual = residual};
  };
  const double seconds = timer_.seconds([&] {
    for (const WeightMatrix& w : copies_) backend_.ops->linear_add(args(w));
  });
  return {.stage = name_,
          .calls = 1,
          .seconds = seconds / static_cast<double>(copies_.size()),
          .bytes = op_bytes(args(first), {})};
}

}  // namespace pewter
