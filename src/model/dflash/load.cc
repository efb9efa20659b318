// From a drafter's directory to a DflashModel: what belongs where is found first, which also says
// what it will take. Drafters are small: each matrix is read whole, laid out anew on the host where
// the stages want it otherwise, and stored.
#include <cstring>
#include <functional>

#include "checkpoint/linear_reader.h"
#include "model/dflash/model.h"
#include "tensor/formats/fp8_block128.h"

namespace pewter {
namespace {

// What a matrix is made of: all rows of another and some of its columns.
struct Place {
  int64_t rows = 0, columns = 0;  // of the matrix that is made
  int64_t column_begin = 0;       // of what is taken of each row
  // Where each row goes; empty: to its own place. Runs of `run` rows stay together.
  std::function<int64_t(int64_t)> row = {};
  int64_t run = 1;

  bool is_whole(const WeightMatrix& from) const {
    return !row && column_begin == 0 && columns == from.k;
  }
};

// Whether scales can move along with what they scale.
bool can_move(const WeightSpec& from, const Place& place) {
  const bool scaled =
      from.format == WeightFormat::kFp8Block128 || from.format == WeightFormat::kInt4Group128;
  if (!scaled) return true;
  if (place.column_begin % kFp8Block != 0 || place.columns % kFp8Block != 0) return false;
  return from.format != WeightFormat::kFp8Block128 || !place.row ||
         (place.run % kFp8Block == 0 && from.n % kFp8Block == 0);
}

// What becomes of a matrix: the format it has, or BF16 where its scales belong to rows or columns
// that part.
WeightSpec moved_spec(const WeightSpec& from, const Place& place) {
  WeightSpec spec = can_move(from, place) ? from : WeightSpec{.format = WeightFormat::kBF16};
  spec.n = place.rows;
  spec.k = place.columns;
  return spec;
}

// Moves a plane of canonical rows: values, scales or zero points, where an element may stand for
// several inputs, or a row for several outputs.
void move_plane(const WeightMatrix& from, const Place& place, const TensorView& source,
                const TensorView& target) {
  if (!source.defined()) return;
  std::memset(target.data(), 0, static_cast<size_t>(target.bytes()));
  const int64_t source_width = source.bytes() / source.dim(1),
                target_width = target.bytes() / target.dim(1);
  const int64_t begin = source_width * place.column_begin / from.k;
  const int64_t outputs = (from.n + source.dim(1) - 1) / source.dim(1);  // of a row
  for (int64_t r = 0; r < source.dim(1); ++r) {
    const int64_t to = place.row ? place.row(r * outputs) / outputs : r;
    std::memcpy(target.data() + to * target_width, source.data() + r * source_width + begin,
                static_cast<size_t>(target_width));
  }
}

// The matrix in BF16.
Result<WeightMatrix> decoded(const WeightMatrix& from) {
  TRY_ASSIGN(WeightMatrix plain,
             make_canonical_weight({.format = WeightFormat::kBF16, .n = from.n, .k = from.k}));
  std::vector<float> row(static_cast<size_t>(from.k));
  for (int64_t r = 0; r < from.n; ++r) {
    decode_row(from, 0, r, row.data());
    for (int64_t c = 0; c < from.k; ++c)
      store_float(plain.values.data(), DType::kBF16, r * from.k + c, row[static_cast<size_t>(c)]);
  }
  return plain;
}

void copy_rows(const TensorView& from, const TensorView& to) {
  if (from.defined()) std::memcpy(to.data(), from.data(), static_cast<size_t>(to.bytes()));
}

class Loader {
 public:
  Loader(const Checkpoint& checkpoint, DflashModel& model)
      : checkpoint_(checkpoint),
        model_(model),
        claims_(checkpoint.tensors().size()),
        direct_io_(static_cast<size_t>(checkpoint.file_count()), false),
        reader_(checkpoint, direct_io_, findings_) {}

  // Finds everything. Error: what is missing, too much or of another shape.
  Status plan() {
    TRY_ASSIGN(const QuantConfig quant, QuantConfig::parse(checkpoint_.config()));
    quant_ = &quant;
    const DflashConfig& config = model_.config;
    const int64_t hidden = config.hidden_size, dim = config.head_dim;
    plan_fc();
    norm("hidden_norm.weight", hidden, model_.hidden_norm);
    norm("norm.weight", hidden, model_.norm);
    model_.layers.resize(static_cast<size_t>(config.layers));
    for (int64_t i = 0; i < config.layers; ++i) {
      const std::string stem = str_cat("layers.", i, "."), attention = stem + "self_attn.";
      DflashLayer& layer = model_.layers[static_cast<size_t>(i)];
      norm(stem + "input_layernorm.weight", hidden, layer.input_norm);
      norm(stem + "post_attention_layernorm.weight", hidden, layer.post_norm);
      norm(attention + "q_norm.weight", dim, layer.q_norm);
      norm(attention + "k_norm.weight", dim, layer.k_norm);
      const auto with_gates = [dim](int64_t row) { return row / dim * 2 * dim + row % dim; };
      matrix(attention + "q_proj", config.query_width(), hidden, layer.q,
             {.rows = 2 * config.query_width(), .columns = hidden, .row = with_gates, .run = dim});
      matrix(attention + "k_proj", config.kv_width(), hidden, layer.k);
      matrix(attention + "v_proj", config.kv_width(), hidden, layer.v);
      matrix(attention + "o_proj", hidden, config.query_width(), layer.out);
      matrix(stem + "mlp.gate_proj", config.intermediate_size, hidden, layer.gate);
      matrix(stem + "mlp.up_proj", config.intermediate_size, hidden, layer.up);
      matrix(stem + "mlp.down_proj", hidden, config.intermediate_size, layer.down);
    }
    check_leftovers();
    return faults();
  }

  // What load() will take of the device, after plan().
  int64_t bytes(const Device& device) const {
    int64_t bytes = 4 * model_.table_elements();
    for (const Vector& vector : vectors_) bytes += 4 * vector.size;
    for (const Matrix& matrix : matrices_)
      for (const Part& part : matrix.parts)
        bytes += device.stored_weight_bytes(moved_spec(matrix.source.spec(), part.place));
    return bytes;
  }

  Status load(Device& device) {
    for (const Matrix& matrix : matrices_) {
      TRY_ASSIGN(const WeightMatrix whole, read(matrix.source));
      for (const Part& part : matrix.parts) TRY(store(whole, part, device));
    }
    for (const Vector& vector : vectors_) {
      std::vector<float> values(static_cast<size_t>(vector.size));
      TRY(reader_.read_floats(*vector.tensor, values));
      for (float& value : values) value -= 1;
      TRY_ASSIGN(*vector.to, model_.add_floats(device, values));
    }
    TRY(faults());
    return model_.add_tables(device);
  }

 private:
  struct Part {
    Place place;
    WeightMatrix* to = nullptr;
  };
  struct Matrix {
    LinearSource source;
    std::vector<Part> parts;
  };
  struct Vector {
    const StoredTensor* tensor = nullptr;
    int64_t size = 0;
    TensorView* to = nullptr;
  };

  Status faults() const {
    return findings_.has_faults() ? Status(findings_.to_error(checkpoint_.directory())) : Status();
  }

  Result<WeightMatrix> read(const LinearSource& source) {
    TRY_ASSIGN(WeightMatrix whole, make_canonical_weight(source.spec()));
    model_.needed_bytes += weight_bytes(source.spec());
    RowBuffers rows([](int64_t bytes) { return Buffer::host(bytes); });
    TRY(reader_.read(source, {0, source.n}, source.has_zeros, rows, [&](const WeightMatrix& read) {
      copy_rows(read.values, whole.values);
      copy_rows(read.scales, whole.scales);
      copy_rows(read.zeros, whole.zeros);
    }));
    return whole;
  }

  Status store(const WeightMatrix& from, const Part& part, Device& device) {
    if (!can_move(spec_of(from), part.place)) {
      TRY_ASSIGN(const WeightMatrix plain, decoded(from));
      return store(plain, part, device);
    }
    const WeightSpec spec = moved_spec(spec_of(from), part.place);
    TRY_ASSIGN(*part.to, device.make_weight(spec));
    model_.bytes += device.stored_weight_bytes(spec);
    if (part.place.is_whole(from)) {
      device.store_rows(*part.to, 0, 0, from);
      return {};
    }
    TRY_ASSIGN(const WeightMatrix made, make_canonical_weight(spec));
    move_plane(from, part.place, from.values, made.values);
    move_plane(from, part.place, from.scales, made.scales);
    move_plane(from, part.place, from.zeros, made.zeros);
    device.store_rows(*part.to, 0, 0, made);
    return {};
  }

  // Null with a fault.
  Matrix* find(const std::string& module, int64_t n, int64_t k) {
    const std::optional<LinearSource> source =
        find_linear(checkpoint_, *quant_, {.module = module, .n = n, .k = k}, claims_, findings_);
    return source ? &matrices_.emplace_back(Matrix{.source = *source}) : nullptr;
  }

  void matrix(const std::string& module, int64_t n, int64_t k, WeightMatrix& to, Place place = {}) {
    if (place.rows == 0) place = {.rows = n, .columns = k};
    if (Matrix* const found = find(module, n, k))
      found->parts.push_back({.place = std::move(place), .to = &to});
  }

  void plan_fc() {
    const int64_t hidden = model_.config.hidden_size;
    const auto taps = std::ssize(model_.config.taps);
    model_.fc.resize(static_cast<size_t>(taps));
    Matrix* const found = find("fc", hidden, taps * hidden);
    for (int64_t i = 0; found != nullptr && i < taps; ++i)
      found->parts.push_back(
          {.place = {.rows = hidden, .columns = hidden, .column_begin = i * hidden},
           .to = &model_.fc[static_cast<size_t>(i)]});
  }

  void norm(const std::string& name, int64_t size, TensorView& to) {
    const StoredTensor* tensor = find_vector(checkpoint_, name, {{size}}, claims_, findings_);
    if (tensor != nullptr) vectors_.push_back({.tensor = tensor, .size = size, .to = &to});
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
  DflashModel& model_;
  Findings findings_;
  Claims claims_;
  std::vector<bool> direct_io_;
  LinearReader reader_;
  const QuantConfig* quant_ = nullptr;  // during plan()
  std::vector<Matrix> matrices_;
  std::vector<Vector> vectors_;
};

Result<DflashConfig> config_of(const Checkpoint& checkpoint) {
  Result<DflashConfig> config = DflashConfig::parse(checkpoint.config());
  if (!config) return config.error().within(checkpoint.directory());
  return config;
}

}  // namespace

Result<DflashConfig> read_dflash_config(const std::string& directory) {
  TRY_ASSIGN(const Checkpoint checkpoint, Checkpoint::open(directory));
  return config_of(checkpoint);
}

Result<DflashPlan> plan_dflash(const std::string& directory, const Device& device) {
  TRY_ASSIGN(const Checkpoint checkpoint, Checkpoint::open(directory));
  DflashModel model;
  TRY_ASSIGN(model.config, config_of(checkpoint));
  Loader loader(checkpoint, model);
  TRY(loader.plan());
  return DflashPlan{.config = model.config, .stored_bytes = loader.bytes(device)};
}

Result<std::shared_ptr<const DflashModel>> DflashModel::load(const std::string& directory,
                                                             Device& device) {
  TRY_ASSIGN(const Checkpoint checkpoint, Checkpoint::open(directory));
  auto model = std::make_shared<DflashModel>();
  TRY_ASSIGN(model->config, config_of(checkpoint));
  Loader loader(checkpoint, *model);
  TRY(loader.plan());
  TRY(loader.load(device));
  return std::shared_ptr<const DflashModel>(std::move(model));
}

}  // namespace pewter
