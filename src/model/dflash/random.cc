#include "model/dflash/random.h"

#include <array>
#include <cmath>

#include "base/rng.h"

namespace pewter {
namespace {

// What differs between the known drafters.
struct Shape {
  std::string_view target;
  int64_t hidden, layers, query_heads, kv_heads, intermediate;
  int64_t target_layers, taps, mask_token, vocabulary;
};

constexpr std::array kShapes = {
    Shape{"third", 1024, 2, 12, 3, 3072, 16, 3, 32767, 32768},
    Shape{"qwen3.5-35b", 2048, 6, 32, 8, 6144, 40, 8, 248077, 248320},
    Shape{"qwen3.5-122b", 3072, 6, 32, 8, 9216, 48, 8, 248077, 248320},
};

// As config.json would say it, so that the reader of real configs checks and completes it.
Json config_json(const Shape& s) {
  Json::Array taps, kinds;
  for (int64_t i = 0; i < s.taps; ++i)  // from the second layer to the last but two
    taps.emplace_back(1 + std::lround(static_cast<double>(i * (s.target_layers - 4)) /
                                      static_cast<double>(s.taps - 1)));
  for (int64_t i = 0; i < s.layers; ++i)
    kinds.emplace_back(i + 1 < s.layers ? "sliding_attention" : "full_attention");
  return Json::Object{{"architectures", Json::Array{"DFlashDraftModel"}},
                      {"hidden_size", s.hidden},
                      {"num_hidden_layers", s.layers},
                      {"num_attention_heads", s.query_heads},
                      {"num_key_value_heads", s.kv_heads},
                      {"head_dim", 128},
                      {"intermediate_size", s.intermediate},
                      {"rms_norm_eps", 1e-6},
                      {"rope_theta", 1e7},
                      {"max_position_embeddings", 262144},
                      {"layer_types", std::move(kinds)},
                      {"sliding_window", 4096},
                      {"block_size", 16},
                      {"vocab_size", s.vocabulary},
                      {"num_target_layers", s.target_layers},
                      {"dflash_config", Json::Object{{"mask_token_id", s.mask_token},
                                                     {"target_layer_ids", std::move(taps)}}}};
}

class Maker {
 public:
  Maker(Device& device, DflashModel& model, const WeightSpec& format, uint64_t seed)
      : device_(device), model_(model), format_(format), seed_(seed) {}

  Status run() {
    const DflashConfig& c = model_.config;
    const int64_t hidden = c.hidden_size;
    model_.fc.resize(c.taps.size());
    for (WeightMatrix& part : model_.fc) TRY(matrix(hidden, hidden, part));
    TRY(norm(hidden, model_.hidden_norm));
    TRY(norm(hidden, model_.norm));
    model_.layers.resize(static_cast<size_t>(c.layers));
    for (DflashLayer& layer : model_.layers) {
      for (TensorView* whole : {&layer.input_norm, &layer.post_norm}) TRY(norm(hidden, *whole));
      for (TensorView* head : {&layer.q_norm, &layer.k_norm}) TRY(norm(c.head_dim, *head));
      // Rows in the gates' places are random too: nobody reads what they give.
      TRY(matrix(2 * c.query_width(), hidden, layer.q));
      model_.needed_bytes -= weight_bytes(spec(c.query_width(), hidden));
      TRY(matrix(c.kv_width(), hidden, layer.k));
      TRY(matrix(c.kv_width(), hidden, layer.v));
      TRY(matrix(hidden, c.query_width(), layer.out));
      TRY(matrix(c.intermediate_size, hidden, layer.gate));
      TRY(matrix(c.intermediate_size, hidden, layer.up));
      TRY(matrix(hidden, c.intermediate_size, layer.down));
    }
    return model_.add_tables(device_);
  }

 private:
  uint64_t next_seed() { return random_bits(seed_, made_++); }

  WeightSpec spec(int64_t n, int64_t k) const {
    WeightSpec spec = format_;
    spec.n = n;
    spec.k = k;
    return spec;
  }

  Status matrix(int64_t n, int64_t k, WeightMatrix& to) {
    constexpr int64_t kRows = 1024;  // made at a time
    TRY_ASSIGN(to, device_.make_weight(spec(n, k)));
    model_.bytes += device_.stored_weight_bytes(spec(n, k));
    model_.needed_bytes += weight_bytes(spec(n, k));
    for (int64_t row = 0; row < n; row += kRows)
      TRY(device_.store_random_rows(to, 0, row,
                                    {.n = std::min(kRows, n - row),
                                     .deviation = 1 / std::sqrt(static_cast<float>(k)),
                                     .seed = next_seed()}));
    return {};
  }

  Status norm(int64_t size, TensorView& to) {
    Rng rng(next_seed());
    std::vector<float> values(static_cast<size_t>(size));
    for (float& value : values) value = rng.uniform(-0.3f, 0.3f);
    TRY_ASSIGN(to, model_.add_floats(device_, values));
    return {};
  }

  Device& device_;
  DflashModel& model_;
  WeightSpec format_;
  uint64_t seed_, made_ = 0;
};

}  // namespace

Result<DflashConfig> dflash_shape(std::string_view target) {
  std::string known;
  for (const Shape& shape : kShapes) {
    if (shape.target == target) return DflashConfig::parse(config_json(shape));
    known += str_cat(known.empty() ? "" : ", ", shape.target);
  }
  return Error{ErrorCode::kInvalidArgument,
               str_cat("no drafter is known of shape \"", target, "\": want ", known)};
}

Result<std::shared_ptr<const DflashModel>> make_random_dflash(Device& device, DflashConfig config,
                                                              const WeightSpec& format,
                                                              uint64_t seed) {
  auto model = std::make_shared<DflashModel>();
  model->config = std::move(config);
  TRY(Maker(device, *model, format, seed).run());
  return std::shared_ptr<const DflashModel>(std::move(model));
}

}  // namespace pewter
