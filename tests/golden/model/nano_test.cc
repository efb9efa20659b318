// Tiny random models of odd sizes against recorded outputs of an independent implementation, tensor
// by tensor. Reference path: within 1e-4 relative, row by row. Fast path (bf16 activations): a
// layer fed the golden input within 2e-2, a whole net within 0.12.

#include "golden_model.h"

namespace pewter {
namespace {

constexpr double kReference = 1e-4, kFastLayer = 2e-2, kFastNet = 0.12;

struct Case {
  std::string model, device;
  friend std::ostream& operator<<(std::ostream& out, const Case& c) {
    return out << c.model << " on " << c.device;
  }
};

std::vector<Case> cases(std::initializer_list<std::string> models) {
  std::vector<Case> all;
  for (const std::string& device : golden_devices({"cpu-reference", "cpu"}))
    for (const std::string& model : models) all.push_back({model, device});
  return all;
}

class Nano : public testing::TestWithParam<Case> {
 protected:
  void SetUp() override {
    if (const std::string why = why_unusable(GetParam().device); !why.empty()) GTEST_SKIP() << why;
    golden_ = Golden::open(golden_data(GetParam().model) + "/golden.safetensors");
    loaded_ = load_golden(
        golden_data(GetParam().model), GetParam().device,
        {.chunk_rows = 192, .max_sequences = 1, .cache_tokens = 512, .logits_rows = 192});
    ids_ = golden_.ids("input_ids");
  }
  bool reference() const { return GetParam().device == "cpu-reference"; }
  Device& device() const { return *loaded_->backend.device; }
  double distance(const TensorView& ours, const Golden::Floats& golden) const {
    return reference() ? worst_row(device(), ours, golden) : whole_distance(device(), ours, golden);
  }
  ModelRunner& runner() { return *loaded_->runner; }
  Ops& ops() { return *loaded_->backend.ops; }

  Golden golden_;
  std::unique_ptr<LoadedGolden> loaded_;
  std::vector<int32_t> ids_;
};

TEST_P(Nano, WholeNetMatches) {
  SequenceState sequence = runner().open(512).value();
  runner().prefill({.sequence = &sequence, .tokens = ids_, .logits = LogitsWanted::kAll});
  const double bound = reference() ? kReference : kFastNet;
  const double hidden = distance(runner().hidden(), golden_.floats("hidden.final_norm"));
  const double logits = distance(runner().logits(), golden_.floats("logits"));
  RecordProperty("worst_hidden", std::to_string(hidden));
  RecordProperty("worst_logits", std::to_string(logits));
  std::printf("%s %s: hidden %.2e, logits %.2e\n", GetParam().model.c_str(),
              GetParam().device.c_str(), hidden, logits);
  EXPECT_LE(hidden, bound);
  EXPECT_LE(logits, bound);
}

// Every layer alone, fed the golden residual stream. hidden.i enters layer i; the last layer's
// output is seen through the final norm only.
TEST_P(Nano, EachLayerMatches) {
  SequenceState sequence = runner().open(512).value();
  const SequenceRows rows{.sequence = &sequence, .tokens = ids_, .logits = LogitsWanted::kNone};
  const Batch& batch = runner().make_batch(Phase::kPrefill, std::span(&rows, 1));
  Activations& act = runner().mutable_activations();
  const double bound = reference() ? kReference : kFastLayer;
  ops().embed({.batch = batch, .table = loaded_->model.weights.embed, .out = act.residual});
  EXPECT_LE(distance(act.residual, golden_.floats("hidden.0")), 1e-6);
  const int64_t layers = loaded_->model.config.layers;
  for (int64_t layer = 0; layer < layers; ++layer) {
    const auto& in = golden_.floats("hidden." + std::to_string(layer));
    device().copy_to_device(act.residual.data(), std::as_bytes(std::span(in.values)));
    run_layer(ops(), loaded_->model, layer, batch, runner().pool(), act);
    double worst = 0;
    if (layer + 1 < layers) {
      worst = distance(act.residual, golden_.floats("hidden." + std::to_string(layer + 1)));
    } else {
      ops().final_norm({.x = act.residual,
                        .norm = loaded_->model.weights.norm,
                        .epsilon = loaded_->model.config.norm_epsilon,
                        .out = act.hidden});
      worst = distance(act.hidden, golden_.floats("hidden.final_norm"));
    }
    std::printf("layer %d: %.2e\n", static_cast<int>(layer), worst);
    EXPECT_LE(worst, bound) << "layer " << layer;
  }
}

// The scalar path only: random nets choose among near ties; the demo's answers test the fast path.
class NanoGreedy : public Nano {};

TEST_P(NanoGreedy, TokensMatch) {
  const auto prompt_length = static_cast<size_t>(golden_.ids("greedy.prompt_len")[0]);
  const std::vector<int32_t> prompt(ids_.begin(),
                                    ids_.begin() + static_cast<ptrdiff_t>(prompt_length));
  SequenceState sequence = runner().open(512).value();
  runner().prefill({.sequence = &sequence, .tokens = prompt});
  for (const int32_t expected : golden_.ids("greedy.tokens")) {
    const std::vector<float> logits = row_floats(device(), runner().logits(), 0);
    const auto token =
        static_cast<int32_t>(std::max_element(logits.begin(), logits.end()) - logits.begin());
    ASSERT_EQ(token, expected) << "after " << sequence.length << " tokens";
    const SequenceRows rows{.sequence = &sequence, .tokens = std::span(&token, 1)};
    runner().decode(std::span(&rows, 1));
    runner().accept(sequence, 1);
  }
}

INSTANTIATE_TEST_SUITE_P(Models, Nano, testing::ValuesIn(cases({"nano-moe", "nano-dense"})),
                         [](const auto& chosen) {
                           std::string name = chosen.param.model + "_" + chosen.param.device;
                           std::replace(name.begin(), name.end(), '-', '_');
                           return name;
                         });

INSTANTIATE_TEST_SUITE_P(Models, NanoGreedy,
                         testing::Values(Case{"nano-moe", "cpu-reference"},
                                         Case{"nano-dense", "cpu-reference"}),
                         [](const auto& chosen) {
                           return chosen.param.model == "nano-moe" ? "moe" : "dense";
                         });

// The multi-token-prediction layer: row t combines the final-norm hidden of position t with token t
// + 1.
class NanoMtp : public Nano {};

TEST_P(NanoMtp, LayerAndChainMatch) {
  const double bound = reference() ? kReference : kFastNet;
  SequenceState target = runner().open(256).value();
  runner().prefill({.sequence = &target, .tokens = ids_, .logits = LogitsWanted::kNone});
  const int64_t count = static_cast<int64_t>(ids_.size()) - 1;
  std::vector<std::vector<float>> hidden;
  for (int64_t r = 0; r < count; ++r) hidden.push_back(row_floats(device(), runner().hidden(), r));
  runner().close(target);

  Activations& act = runner().mutable_activations();
  const auto set_hidden = [&](int64_t row, const std::vector<float>& values) {
    set_row(device(), act.mtp_hidden, row, values);
  };
  // The layer over the whole text.
  SequenceState sequence = runner().open(256).value();
  const std::vector<int32_t> next(ids_.begin() + 1, ids_.end());
  const SequenceRows rows{.sequence = &sequence, .tokens = next, .logits = LogitsWanted::kAll};
  const Batch& whole = runner().make_batch(Phase::kPrefill, std::span(&rows, 1));
  for (int64_t r = 0; r < count; ++r) set_hidden(r, hidden[static_cast<size_t>(r)]);
  forward_mtp(ops(), loaded_->model, whole, runner().pool(), act);
  EXPECT_LE(distance(act.hidden, golden_.floats("mtp.hidden")), bound);
  EXPECT_LE(distance(act.logits, golden_.floats("mtp.logits")), bound);

  // Four drafts after the first 37 tokens: the layer's own hidden and draft are fed back.
  constexpr int64_t kPrefix = 37;
  const auto& chain_logits = golden_.floats("mtp.chain.logits");
  const auto& chain_tokens = golden_.ids("mtp.chain.tokens");
  runner().close(sequence);
  sequence = runner().open(256).value();
  std::vector<int32_t> tokens(ids_.begin() + 1, ids_.begin() + kPrefix);
  tokens.push_back(golden_.ids("mtp.chain.first_token")[0]);
  for (int64_t r = 0; r < kPrefix; ++r) set_hidden(r, hidden[static_cast<size_t>(r)]);
  for (int64_t draft = 0; draft < chain_logits.rows(); ++draft) {
    const SequenceRows step{.sequence = &sequence, .tokens = tokens};
    const Batch& batch =
        runner().make_batch(draft == 0 ? Phase::kPrefill : Phase::kDecode, std::span(&step, 1));
    forward_mtp(ops(), loaded_->model, batch, runner().pool(), act);
    sequence.length += static_cast<int64_t>(tokens.size());
    EXPECT_LE(relative_distance(row_floats(device(), act.logits, 0).data(), chain_logits.row(draft),
                                chain_logits.cols()),
              bound)
        << "draft " << draft;
    const std::vector<float> logits = row_floats(device(), act.logits, 0);
    const auto token =
        static_cast<int32_t>(std::max_element(logits.begin(), logits.end()) - logits.begin());
    if (reference()) {
      EXPECT_EQ(token, chain_tokens[static_cast<size_t>(draft)]);
    }
    const std::vector<float> own =
        row_floats(device(), act.hidden, static_cast<int64_t>(tokens.size()) - 1);
    tokens.assign(1, chain_tokens[static_cast<size_t>(draft)]);
    set_hidden(0, own);
  }
}

INSTANTIATE_TEST_SUITE_P(Models, NanoMtp, testing::ValuesIn(cases({"nano-moe"})),
                         [](const auto& chosen) {
                           const std::string& device = chosen.param.device;
                           return device == "cpu"    ? "fast"
                                  : device == "cuda" ? "cuda"
                                                     : "reference";
                         });

}  // namespace
}  // namespace pewter
