#include "model/qwen35/footprint.h"

#include <algorithm>

namespace pewter {
namespace {

class Counter {
 public:
  explicit Counter(const ModelConfig& config) : config_(config) {}

  void add(const MatrixParameter& p, const WeightSpec& spec, int64_t disk_bytes) {
    ComponentBytes& row = rows_[static_cast<size_t>(p.component)];
    const int64_t stored = weight_bytes(spec);
    row.parameters += p.n * p.k * p.count;
    row.disk_bytes += disk_bytes;
    row.stored_bytes += stored;
    row.token_bytes += token_bytes(p, stored);
    const std::string_view format = weight_format_name(spec.format);
    if (row.formats.find(format) == std::string::npos)
      row.formats += str_cat(row.formats.empty() ? "" : " + ", format);
  }
  void add(const VectorParameter& p, int64_t disk_bytes) {
    ComponentBytes& row = rows_[static_cast<size_t>(p.component)];
    row.parameters += p.elements();
    row.disk_bytes += disk_bytes;
    row.stored_bytes += 4 * p.elements();
    row.token_bytes += 4 * p.elements();
    if (row.formats.empty()) row.formats = "f32";
  }

  Footprint finish(const StateTypes& types) {
    Footprint out;
    // A tied head is the embedding, read whole, or made of it.
    ComponentBytes& head = rows_[static_cast<size_t>(Component::kHead)];
    if (config_.tied_embeddings && !head.formats.empty()) {
      head.parameters = head.disk_bytes = 0;
    } else if (config_.tied_embeddings) {
      const ComponentBytes& embedding = rows_[static_cast<size_t>(Component::kEmbedding)];
      head.formats = embedding.formats;
      head.token_bytes = embedding.stored_bytes;
    }
    out.total.name = "total";
    for (int i = 0; i < kComponents; ++i) {
      ComponentBytes& row = rows_[static_cast<size_t>(i)];
      if (row.formats.empty()) continue;
      row.name = component_name(static_cast<Component>(i));
      out.components.push_back(row);
      if (static_cast<Component>(i) == Component::kMtp) continue;
      out.total.parameters += row.parameters;
      out.total.disk_bytes += row.disk_bytes;
      out.total.stored_bytes += row.stored_bytes;
      out.total.token_bytes += row.token_bytes;
    }
    const int64_t deltas = config_.count(LayerKind::kDelta);
    out.recurrent_bytes = deltas * config_.value_heads * config_.key_dim * config_.value_dim * 4;
    out.convolution_bytes = deltas * config_.delta_channels() * 3 * dtype_bytes(types.activations);
    const int64_t layer_kv = 2 * config_.kv_heads * config_.head_dim * dtype_bytes(types.kv);
    out.kv_token_bytes = config_.count(LayerKind::kAttention) * layer_kv;
    out.mtp_kv_token_bytes = config_.mtp_layers * layer_kv;
    return out;
  }

 private:
  // A token reads one row of the embedding, its own experts' weights, and everything else whole.
  int64_t token_bytes(const MatrixParameter& p, int64_t stored) const {
    if (p.component == Component::kEmbedding) return stored / p.n;
    if (p.is_experts()) return stored / p.count * config_.experts_per_token;
    return stored;
  }

  const ModelConfig& config_;
  std::array<ComponentBytes, kComponents> rows_;
};

// Files store zero points of symmetric int4 too, four bits a group.
int64_t file_bytes(const WeightSpec& spec) {
  const int64_t groups = spec.count * spec.n * spec.k / 128;
  if (spec.format != WeightFormat::kInt4Group128) return weight_bytes(spec);
  return weight_bytes(spec) - (spec.has_zeros ? groups : 0) + groups / 2;
}

}  // namespace

WeightSpec spec_of(const MatrixParameter& p, const FormatChoice& format) {
  WeightSpec spec = format(p);
  spec.n = p.n;
  spec.k = p.k;
  spec.count = p.count;
  return spec;
}

Parameters list_parameters(const ModelConfig& config, const FormatChoice& format, bool with_mtp,
                           ModelWeights& weights) {
  Parameters parameters = list_parameters(config, with_mtp, weights);
  MatrixParameter head{.component = Component::kHead,
                       .module = "lm_head",
                       .n = config.vocab_size,
                       .k = config.hidden_size,
                       .target = &weights.head};
  if (config.tied_embeddings && format(head).format == WeightFormat::kInt8Row)
    parameters.matrices.push_back(std::move(head));
  return parameters;
}

Footprint footprint(const ModelConfig& config, const LoadPlan& plan, const StateTypes& types) {
  Counter counter(config);
  for (const MatrixPlan& matrix : plan.matrices) {
    int64_t disk = 0;
    for (const LinearSource& source : matrix.sources) disk += source.file_bytes();
    counter.add(matrix.parameter, matrix.spec, disk);
    if (matrix.int8_head == nullptr) continue;
    MatrixParameter head = matrix.parameter;
    head.component = Component::kHead;
    counter.add(head, matrix.int8_head_spec(), 0);
  }
  for (const VectorPlan& vector : plan.vectors)
    counter.add(vector.parameter, vector.tensor->info.bytes());
  return counter.finish(types);
}

Footprint footprint(const ModelConfig& config, bool with_mtp, const FormatChoice& format,
                    const StateTypes& types) {
  Counter counter(config);
  ModelWeights shape;
  const Parameters parameters = list_parameters(config, format, with_mtp, shape);
  for (const MatrixParameter& p : parameters.matrices) {
    const WeightSpec spec = spec_of(p, format);
    // What is int8 on the device is BF16 in files.
    counter.add(p, spec,
                spec.format == WeightFormat::kInt8Row ? 2 * p.n * p.k * p.count : file_bytes(spec));
  }
  for (const VectorParameter& p : parameters.vectors) counter.add(p, 2 * p.elements());
  return counter.finish(types);
}

}  // namespace pewter
