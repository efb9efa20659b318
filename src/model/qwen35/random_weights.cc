#include "model/qwen35/random_weights.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <mutex>

#include "base/rng.h"
#include "base/thread_pool.h"
#include "tensor/formats/fp8_block128.h"
#include "tensor/formats/int4_group128.h"

namespace pewter {
namespace {

// Rows made and stored at a time: a few megabytes, a multiple of what store_rows wants.
int64_t block_rows(const WeightSpec& spec) {
  constexpr int64_t kBlockElements = int64_t{1} << 20;
  return std::min(spec.n, std::max<int64_t>(1, kBlockElements / spec.k / 128) * 128);
}

// A run of 64-bit numbers; faster than random_bits by one mix.
class Bits {
 public:
  explicit Bits(uint64_t seed) : state_(mix64(seed)) {}
  uint64_t next() { return mix64(state_ += 0x9E3779B97F4A7C15u); }

 private:
  uint64_t state_;
};

// Four numbers of variance 1 from each draw, uniform in ±√3.
template <typename Store>
void uniform_values(Bits& bits, int64_t count, const Store& store) {
  constexpr float kUnit = 1.7320508f / 32768.0f;
  for (int64_t i = 0; i < count; i += 4) {
    uint64_t word = bits.next();
    for (int64_t j = i; j < std::min(i + 4, count); ++j, word >>= 16)
      store(j, kUnit * static_cast<float>(static_cast<int16_t>(word & 0xFFFFu)));
  }
}

void random_bytes(Bits& bits, std::byte* to, int64_t count) {
  for (int64_t i = 0; i < count; i += 8) {
    const uint64_t word = bits.next();
    std::memcpy(to + i, &word, static_cast<size_t>(std::min<int64_t>(8, count - i)));
  }
}

// 256 codes of E4M3 spread evenly over ±448: the nearest to each of 256 values.
const std::array<uint8_t, 256>& fp8_codes() {
  static const std::array<uint8_t, 256> codes = [] {
    std::array<uint8_t, 256> nearest{};
    for (int i = 0; i < 256; ++i) {
      const float want = (static_cast<float>(i) - 127.5f) / 127.5f * 448.0f;
      float best = INFINITY;
      for (int code = 0; code < 256; ++code) {
        const float off = std::fabs(e4m3_to_float(static_cast<uint8_t>(code)) - want);
        if (off < best) {  // never for NaN
          best = off;
          nearest[static_cast<size_t>(i)] = static_cast<uint8_t>(code);
        }
      }
    }
    return nearest;
  }();
  return codes;
}

// Writes a float of F16, BF16 or F32. Values here are normal numbers of all three.
void store_scale(const TensorView& scales, int64_t i, float value) {
  if (scales.dtype() != DType::kF16) return store_float(scales.data(), scales.dtype(), i, value);
  const auto bits = std::bit_cast<uint32_t>(value);
  const uint32_t exponent = ((bits >> 23) & 0xFFu) - 112;  // 2^-14 … 2^15
  scales.data_as<uint16_t>()[i] =
      static_cast<uint16_t>(((bits >> 16) & 0x8000u) | (exponent << 10) | ((bits >> 13) & 0x3FFu));
}

// rows of a matrix of k inputs; `size` is the standard deviation of an element.
void fill_rows(const WeightMatrix& rows, float size, uint64_t seed) {
  Bits bits(seed);
  const TensorView& values = rows.values;
  switch (rows.format) {
    case WeightFormat::kF32:
    case WeightFormat::kF16:
    case WeightFormat::kBF16:
      CHECK(values.dtype() != DType::kF16, "random f16 matrices are not made");
      if (values.dtype() == DType::kBF16) {
        auto* to = values.data_as<BFloat16>();
        return uniform_values(bits, values.elements(),
                              [&](int64_t i, float x) { to[i] = to_bfloat16(size * x); });
      }
      return uniform_values(bits, values.elements(),
                            [&](int64_t i, float x) { values.data_as<float>()[i] = size * x; });
    case WeightFormat::kFp8Block128: {
      random_bytes(bits, values.data(), values.bytes());
      const std::array<uint8_t, 256>& codes = fp8_codes();
      auto* to = values.data_as<uint8_t>();
      for (int64_t i = 0; i < values.bytes(); ++i) to[i] = codes[to[i]];
      const float unit = size / (448.0f / 1.7320508f);
      return uniform_values(bits, rows.scales.elements(), [&](int64_t i, float x) {
        store_scale(rows.scales, i, unit * (1.0f + 0.1f * x));
      });
    }
    case WeightFormat::kInt4Group128: {
      random_bytes(bits, values.data(), values.bytes());
      CHECK(!rows.zeros.defined(), "random int4 is symmetric");
      constexpr float kCodeSize = 4.6368f;  // of code − 8, uniform in −8 … 7
      return uniform_values(bits, rows.scales.elements(), [&](int64_t i, float x) {
        const float magnitude = size / kCodeSize * (0.75f + 0.25f * std::fabs(x));
        store_scale(rows.scales, i, x < 0 ? -magnitude : magnitude);
      });
    }
    case WeightFormat::kInt8Row: {
      random_bytes(bits, values.data(), values.bytes());
      auto* to = values.data_as<int8_t>();
      for (int64_t i = 0; i < values.bytes(); ++i) to[i] = std::max(to[i], int8_t{-127});
      constexpr float kCodeSize = 73.6f;  // of codes uniform in −127 … 127
      return uniform_values(bits, rows.scales.elements(), [&](int64_t i, float x) {
        store_scale(rows.scales, i, size / kCodeSize * (1.0f + 0.1f * x));
      });
    }
  }
}

class Maker {
 public:
  Maker(Device& device, const ModelConfig& config, const FormatChoice& format,
        const RandomWeightOptions& options)
      : device_(device), config_(config), format_(format), options_(options) {}

  Result<ModelWeights> run() {
    ModelWeights weights;
    const Parameters parameters = list_parameters(config_, format_, /*with_mtp=*/false, weights);
    for (const MatrixParameter& p : parameters.matrices) TRY(add(p));
    fill_matrices();
    TRY(first_error_);
    for (const VectorParameter& p : parameters.vectors) {
      TRY(make(p, weights));
    }
    if (!weights.head.defined()) weights.head = weights.embed;  // tied
    return weights;
  }

 private:
  struct Item {
    WeightMatrix* to = nullptr;
    WeightSpec rows;
    int64_t index = 0, row_begin = 0;
    float size = 0;
  };

  Status add(const MatrixParameter& p) {
    const WeightSpec spec = spec_of(p, format_);
    TRY_ASSIGN(*p.target, device_.make_weight(spec));
    total_ += weight_bytes(spec);
    // Embeddings as large as what the layers add, so that tokens stay different and with them the
    // experts they choose.
    const float size =
        p.component == Component::kEmbedding ? 1.0f : 1.0f / std::sqrt(static_cast<float>(p.k));
    const int64_t step = block_rows(spec);
    for (int64_t index = 0; index < p.count; ++index)
      for (int64_t row = 0; row < p.n; row += step) {
        Item item{.to = p.target, .rows = spec, .index = index, .row_begin = row, .size = size};
        item.rows.n = std::min(step, p.n - row);
        item.rows.count = 1;
        items_.push_back(item);
      }
    return {};
  }

  void fill_matrices() {
    ThreadPool pool(options_.threads);
    pool.parallel_for(static_cast<int64_t>(items_.size()), [this](int64_t i) {
      const Item& item = items_[static_cast<size_t>(i)];
      Result<WeightMatrix> rows = make_canonical_weight(item.rows);
      if (!rows) {
        const std::lock_guard lock(mutex_);
        first_error_ = rows.error();
        return;
      }
      fill_rows(*rows, item.size, random_bits(options_.seed, static_cast<uint64_t>(i)));
      device_.store_rows(*item.to, item.index, item.row_begin, *rows);
      if (!options_.progress) return;
      const std::lock_guard lock(mutex_);
      done_ += weight_bytes(item.rows);
      options_.progress(done_, total_);
    });
  }

  Status make(const VectorParameter& p, ModelWeights& weights) {
    Rng rng(random_bits(options_.seed ^ 0x5EED, vectors_++));
    std::vector<float> values(static_cast<size_t>(p.elements()));
    const std::string_view name = p.name;
    for (float& x : values) {
      if (name.ends_with("A_log")) {  // decays from almost none to almost all
        x = std::log(rng.uniform(0.02f, 2.0f));
      } else if (name.ends_with("dt_bias")) {
        x = rng.uniform(-2.0f, 1.0f);
      } else if (name.ends_with("conv1d.weight")) {
        x = 0.5f * rng.normal();
      } else if (name.ends_with("linear_attn.norm.weight")) {  // plain
        x = rng.uniform(0.5f, 1.5f);
      } else {  // the (1 + w) norms
        x = rng.uniform(-0.3f, 0.3f);
      }
    }
    TRY_ASSIGN(Buffer buffer, device_.allocate(p.elements() * 4));
    device_.copy_to_device(buffer.data(), std::as_bytes(std::span(values)));
    *p.target = p.view_shape.size() == 1
                    ? TensorView(buffer.data(), DType::kF32, {p.view_shape[0]})
                    : TensorView(buffer.data(), DType::kF32, {p.view_shape[0], p.view_shape[1]});
    weights.vectors.push_back(std::move(buffer));
    return {};
  }

  Device& device_;
  const ModelConfig& config_;
  const FormatChoice& format_;
  const RandomWeightOptions& options_;
  std::vector<Item> items_;
  int64_t total_ = 0;
  int64_t done_ = 0;  // guarded by mutex_, as is first_error_
  uint64_t vectors_ = 0;
  std::mutex mutex_;
  Status first_error_;
};

// Layer i of the whole model is one of the unique ones: of its kind, in turn.
void repeat_layers(const ModelConfig& config, ModelWeights& weights) {
  std::array<std::vector<size_t>, 2> of_kind;
  for (size_t i = 0; i < weights.layers.size(); ++i)
    of_kind[static_cast<size_t>(config.layer_kinds[i])].push_back(i);
  std::array<size_t, 2> seen{};
  std::vector<LayerWeights> layers;
  for (const LayerKind kind : config.layer_kinds) {
    const std::vector<size_t>& unique = of_kind[static_cast<size_t>(kind)];
    layers.push_back(weights.layers[unique[seen[static_cast<size_t>(kind)]++ % unique.size()]]);
  }
  weights.layers = std::move(layers);
}

}  // namespace

ModelConfig first_layers(const ModelConfig& config, int64_t layers) {
  ModelConfig cut = config;
  if (layers == 0 || layers >= config.layers) return cut;
  cut.layers = layers;
  cut.layer_kinds.resize(static_cast<size_t>(layers));
  return cut;
}

Result<ModelWeights> make_random_weights(Device& device, const ModelConfig& config,
                                         const FormatChoice& format,
                                         const RandomWeightOptions& options) {
  const ModelConfig unique = first_layers(config, options.unique_layers);
  for (const LayerKind kind : {LayerKind::kDelta, LayerKind::kAttention})
    if (config.count(kind) > 0 && unique.count(kind) == 0)
      return Error{ErrorCode::kInvalidArgument,
                   str_cat("the first ", unique.layers, " layers have no ",
                           kind == LayerKind::kDelta ? "gated delta net" : "full attention",
                           " layer to repeat")};
  TRY_ASSIGN(ModelWeights weights, Maker(device, unique, format, options).run());
  repeat_layers(config, weights);
  return weights;
}

RandomWeightBytes random_weight_bytes(const Device& device, const ModelConfig& config,
                                      const FormatChoice& format, int64_t unique_layers) {
  const ModelConfig unique = first_layers(config, unique_layers);
  ModelWeights shape;
  const Parameters parameters = list_parameters(unique, format, /*with_mtp=*/false, shape);
  RandomWeightBytes bytes;
  const auto add = [&](std::string_view name, int64_t count) {
    (name.starts_with("layers.") ? bytes.layers : bytes.others) += count;
  };
  for (const MatrixParameter& p : parameters.matrices)
    add(p.module, device.stored_weight_bytes(spec_of(p, format)));
  for (const VectorParameter& p : parameters.vectors) add(p.name, 4 * p.elements());
  return bytes;
}

}  // namespace pewter
