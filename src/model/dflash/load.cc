// From a drafter's directory to a DflashModel. Drafters are small: each matrix is read whole, laid
// out anew on the host where the stages want it otherwise, and stored.
#include <cstring>
#include <functional>

#include "checkpoint/linear_reader.h"
#include "model/dflash/model.h"

namespace pewter {
namespace {

// Where row r of a matrix as stored goes.
struct Place {
  int64_t rows = 0, columns = 0;             // of the matrix made of it
  int64_t column_begin = 0;                  // of what is taken of each row
  std::function<int64_t(int64_t)> row = {};  // empty: r
};

class Loader {
 public:
  Loader(const Checkpoint& checkpoint, Device& device, DflashModel& model)
      : checkpoint_(checkpoint),
        device_(device),
        model_(model),
        claims_(checkpoint.tensors().size()),
        direct_io_(static_cast<size_t>(checkpoint.file_count()), false),
        reader_(checkpoint, direct_io_, findings_) {}

  Status run() {
    TRY_ASSIGN(const QuantConfig quant, QuantConfig::parse(checkpoint_.config()));
    quant_ = &quant;
    const DflashConfig& config = model_.config;
    const int64_t hidden = config.hidden_size, dim = config.head_dim;
    TRY(load_fc());
    TRY(norm("hidden_norm.weight", hidden, model_.hidden_norm));
    TRY(norm("norm.weight", hidden, model_.norm));
    for (int64_t i = 0; i < config.layers; ++i) {
      const std::string stem = str_cat("layers.", i, "."), attention = stem + "self_attn.";
      DflashLayer& layer = model_.layers.emplace_back();
      TRY(norm(stem + "input_layernorm.weight", hidden, layer.input_norm));
      TRY(norm(stem + "post_attention_layernorm.weight", hidden, layer.post_norm));
      TRY(norm(attention + "q_norm.weight", dim, layer.q_norm));
      TRY(norm(attention + "k_norm.weight", dim, layer.k_norm));
      const auto with_gates = [dim](int64_t row) { return row / dim * 2 * dim + row % dim; };
      TRY(matrix(attention + "q_proj", config.query_width(), hidden, layer.q,
                 {.rows = 2 * config.query_width(), .columns = hidden, .row = with_gates}));
      TRY(matrix(attention + "k_proj", config.kv_width(), hidden, layer.k));
      TRY(matrix(attention + "v_proj", config.kv_width(), hidden, layer.v));
      TRY(matrix(attention + "o_proj", hidden, config.query_width(), layer.out));
      TRY(matrix(stem + "mlp.gate_proj", config.intermediate_size, hidden, layer.gate));
      TRY(matrix(stem + "mlp.up_proj", config.intermediate_size, hidden, layer.up));
      TRY(matrix(stem + "mlp.down_proj", hidden, config.intermediate_size, layer.down));
    }
    check_leftovers();
    if (findings_.has_faults()) return findings_.to_error(checkpoint_.directory());
    return model_.add_tables(device_);
  }

 private:
  // Empty with a fault.
  std::optional<LinearSource> find(const std::string& module, int64_t n, int64_t k) {
    return find_linear(checkpoint_, *quant_, {.module = module, .n = n, .k = k, .float_only = true},
                       claims_, findings_);
  }

  Result<WeightMatrix> read(const LinearSource& source) {
    TRY_ASSIGN(WeightMatrix whole, make_canonical_weight(source.spec()));
    model_.needed_bytes += weight_bytes(source.spec());
    RowBuffers rows([](int64_t bytes) { return Buffer::host(bytes); });
    TRY(reader_.read(source, {0, source.n}, false, rows, [&](const WeightMatrix& read) {
      std::memcpy(whole.values.data(), read.values.data(),
                  static_cast<size_t>(whole.values.bytes()));
    }));
    return whole;
  }

  Status store(const WeightMatrix& from, const Place& place, WeightMatrix& to) {
    const WeightSpec spec{.format = from.format, .n = place.rows, .k = place.columns};
    TRY_ASSIGN(to, device_.make_weight(spec));
    model_.bytes += device_.stored_weight_bytes(spec);
    TRY_ASSIGN(const WeightMatrix made, make_canonical_weight(spec));
    std::memset(made.values.data(), 0, static_cast<size_t>(made.values.bytes()));
    const int64_t element = dtype_bytes(from.values.dtype()), width = place.columns * element;
    for (int64_t r = 0; r < from.n; ++r)
      std::memcpy(made.values.data() + (place.row ? place.row(r) : r) * width,
                  from.values.data() + (r * from.k + place.column_begin) * element,
                  static_cast<size_t>(width));
    device_.store_rows(to, 0, 0, made);
    return {};
  }

  Status matrix(const std::string& module, int64_t n, int64_t k, WeightMatrix& to,
                Place place = {}) {
    const std::optional<LinearSource> source = find(module, n, k);
    if (!source) return {};
    if (place.rows == 0) place = {.rows = n, .columns = k};
    TRY_ASSIGN(const WeightMatrix whole, read(*source));
    return store(whole, place, to);
  }

  Status load_fc() {
    const int64_t hidden = model_.config.hidden_size;
    const auto taps = std::ssize(model_.config.taps);
    model_.fc.resize(static_cast<size_t>(taps));
    const std::optional<LinearSource> source = find("fc", hidden, taps * hidden);
    if (!source) return {};
    TRY_ASSIGN(const WeightMatrix whole, read(*source));
    for (int64_t i = 0; i < taps; ++i)
      TRY(store(whole, {.rows = hidden, .columns = hidden, .column_begin = i * hidden},
                model_.fc[static_cast<size_t>(i)]));
    return {};
  }

  Status norm(const std::string& name, int64_t size, TensorView& to) {
    const StoredTensor* tensor = find_vector(checkpoint_, name, {{size}}, claims_, findings_);
    if (tensor == nullptr) return {};
    std::vector<float> values(static_cast<size_t>(size));
    TRY(reader_.read_floats(*tensor, values));
    for (float& value : values) value -= 1;
    TRY_ASSIGN(to, model_.add_floats(device_, values));
    return {};
  }

  // The target's embedding and head are used, whatever a drafter's file repeats of them.
  void check_leftovers() {
    for (const StoredTensor& tensor : checkpoint_.tensors())
      if (!claims_[static_cast<size_t>(tensor.id)] && tensor.name != "embed_tokens.weight" &&
          tensor.name != "lm_head.weight")
        findings_.fault(checkpoint_.file_name(tensor), tensor.info.name,
                        "belongs to no parameter of a DFlash drafter");
  }

  const Checkpoint& checkpoint_;
  Device& device_;
  DflashModel& model_;
  Findings findings_;
  Claims claims_;
  std::vector<bool> direct_io_;
  LinearReader reader_;
  const QuantConfig* quant_ = nullptr;
};

}  // namespace

Result<DflashConfig> read_dflash_config(const std::string& directory) {
  TRY_ASSIGN(const Checkpoint checkpoint, Checkpoint::open(directory));
  Result<DflashConfig> config = DflashConfig::parse(checkpoint.config());
  if (!config) return config.error().within(checkpoint.directory());
  return config;
}

Result<std::shared_ptr<const DflashModel>> DflashModel::load(const std::string& directory,
                                                             Device& device) {
  TRY_ASSIGN(const Checkpoint checkpoint, Checkpoint::open(directory));
  auto model = std::make_shared<DflashModel>();
  Result<DflashConfig> config = DflashConfig::parse(checkpoint.config());
  if (!config) return config.error().within(checkpoint.directory());
  model->config = *std::move(config);
  TRY(Loader(checkpoint, device, *model).run());
  return std::shared_ptr<const DflashModel>(std::move(model));
}

}  // namespace pewter
