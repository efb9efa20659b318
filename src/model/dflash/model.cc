#include "model/dflash/model.h"

#include <cmath>

namespace pewter {

Result<TensorView> DflashModel::add_floats(Device& device, const std::vector<float>& values) {
  const auto count = std::ssize(values);
  TRY_ASSIGN(Buffer buffer, device.allocate(count * 4));
  device.copy_to_device(buffer.data(), std::as_bytes(std::span(values)));
  bytes += count * 4;
  needed_bytes += count * 4;
  const TensorView view(buffer.data(), DType::kF32, {count});
  buffers.push_back(std::move(buffer));
  return view;
}

Status DflashModel::add_tables(Device& device) {
  const int64_t half = config.head_dim / 2;
  std::vector<float> frequency(static_cast<size_t>(half));
  for (int64_t i = 0; i < half; ++i)
    frequency[static_cast<size_t>(i)] = static_cast<float>(std::pow(
        config.rope_theta, -2.0 * static_cast<double>(i) / static_cast<double>(config.head_dim)));
  TRY_ASSIGN(inverse_frequency, add_floats(device, frequency));
  const auto zeros = std::vector<float>(static_cast<size_t>(half), 0.0f);
  TRY_ASSIGN(const TensorView zero_axis, add_floats(device, zeros));
  axis = zero_axis.data_as<const int32_t>();
  TRY_ASSIGN(identity_norm,
             add_floats(device, std::vector<float>(static_cast<size_t>(config.hidden_size),
                                                   kIdentityWeight)));
  return {};
}

int64_t DflashModel::stored_bytes(const DflashConfig& config, const Device& device,
                                  const WeightSpec& format) {
  const auto matrix = [&](int64_t n, int64_t k) {
    WeightSpec spec = format;
    spec.n = n;
    spec.k = k;
    return device.stored_weight_bytes(spec);
  };
  const int64_t hidden = config.hidden_size, q = config.query_width(), kv = config.kv_width();
  const int64_t layer = matrix(2 * q, hidden) + 2 * matrix(kv, hidden) + matrix(hidden, q) +
                        2 * matrix(config.intermediate_size, hidden) +
                        matrix(hidden, config.intermediate_size) +
                        4 * (2 * hidden + 2 * config.head_dim);
  return config.layers * layer + std::ssize(config.taps) * matrix(hidden, hidden) +
         4 * (3 * hidden + config.head_dim);
}

OpsLimits DflashModel::limits(const DflashConfig& c) {
  return {.widest_input = std::max({c.hidden_size, c.query_width(), c.intermediate_size}),
          .widest_output = std::max(
              {c.hidden_size, 2 * c.query_width() + 2 * c.kv_width(), c.intermediate_size}),
          .query_heads = c.query_heads,
          .kv_heads = c.kv_heads,
          .head_dim = c.head_dim};
}

}  // namespace pewter
