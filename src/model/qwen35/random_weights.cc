#include "model/qwen35/random_weights.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <mutex>

#include "base/rng.h"
#include "base/thread_pool.h"

namespace pewter {
namespace {

// Rows made and stored at a time: a few megabytes, a multiple of what store_rows wants.
int64_t block_rows(const WeightSpec& spec) {
  constexpr int64_t kBlockElements = int64_t{1} << 20;
  return std::min(spec.n, std::max<int64_t>(1, kBlockElements / spec.k / 128) * 128);
}

const FormatChoice kDraftHeadFormat = [](const MatrixParameter&) {
  return WeightSpec{.format = WeightFormat::kInt8Row};
};

MatrixParameter draft_head_of(const ModelConfig& config, int64_t rows, ModelWeights& weights) {
  return {.component = Component::kHead,
          .module = "draft_head",
          .n = rows,
          .k = config.hidden_size,
          .target = &weights.draft_head.emplace().rows};
}

class Maker {
 public:
  Maker(Device& device, const ModelConfig& config, const FormatChoice& format,
        const RandomWeightOptions& options)
      : device_(device), config_(config), format_(format), options_(options) {}

  Result<ModelWeights> run() {
    ModelWeights weights;
    const Parameters parameters = list_parameters(config_, format_, options_.with_mtp, weights);
    for (const MatrixParameter& p : parameters.matrices) TRY(add(p));
    if (options_.draft_head_rows > 0)
      TRY(add(draft_head_of(config_, options_.draft_head_rows, weights), kDraftHeadFormat));
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

  Status add(const MatrixParameter& p) { return add(p, format_); }
  Status add(const MatrixParameter& p, const FormatChoice& format) {
    const WeightSpec spec = spec_of(p, format);
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
      const Status stored =
          device_.store_random_rows(*item.to, item.index, item.row_begin,
                                    {.n = item.rows.n,
                                     .deviation = item.size,
                                     .seed = random_bits(options_.seed, static_cast<uint64_t>(i))});
      if (!stored) {
        const std::lock_guard lock(mutex_);
        first_error_ = stored;
        return;
      }
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
                                      const FormatChoice& format,
                                      const RandomWeightOptions& options) {
  const ModelConfig unique = first_layers(config, options.unique_layers);
  ModelWeights shape;
  const Parameters parameters = list_parameters(unique, format, options.with_mtp, shape);
  RandomWeightBytes bytes;
  if (options.draft_head_rows > 0)
    bytes.others += device.stored_weight_bytes(
        spec_of(draft_head_of(config, options.draft_head_rows, shape), kDraftHeadFormat));
  const auto add = [&](std::string_view name, int64_t count) {
    (name.starts_with("layers.") ? bytes.layers : bytes.others) += count;
  };
  for (const MatrixParameter& p : parameters.matrices)
    add(p.module, device.stored_weight_bytes(spec_of(p, format)));
  for (const VectorParameter& p : parameters.vectors) add(p.name, 4 * p.elements());
  return bytes;
}

}  // namespace pewter
