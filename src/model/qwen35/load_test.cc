// Every layout a file may have gives the same canonical weights.
#include "model/qwen35/load.h"

#include <gmock/gmock.h>

#include <cstdlib>

#include "model/qwen35/testing/host_device.h"
#include "model/qwen35/testing/synthetic_checkpoint.h"
#include "tensor/formats/int8_row.h"

namespace pewter {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

struct Loaded {
  ModelConfig config;
  LoadedWeights loaded;
};

Loaded load(const std::string& path, const LoadOptions& options = {}) {
  HostDevice device;
  const auto checkpoint = Checkpoint::open(path);
  CHECK(checkpoint.has_value(), checkpoint.error().message);
  auto config = ModelConfig::parse(checkpoint->config());
  CHECK(config.has_value(), config.error().message);
  auto loaded = load_weights(*checkpoint, *config, device, options);
  CHECK(loaded.has_value(), loaded.error().message);
  return {std::move(config).value(), std::move(loaded).value()};
}

// Every linear module by its canonical name, experts one by one.
std::map<std::string, WeightMatrix> modules_of(Loaded& model) {
  ModelWeights& weights = model.loaded.weights;
  std::map<std::string, WeightMatrix> modules;
  for (const MatrixParameter& p :
       list_parameters(model.config, weights.mtp.has_value(), weights).matrices)
    for (int64_t i = 0; i < p.count; ++i)
      modules[p.is_experts() ? str_cat(p.module, ".", i, ".", p.projection) : p.module] =
          p.target->at(i);
  return modules;
}

std::vector<float> decode(const WeightMatrix& w) {
  std::vector<float> values(static_cast<size_t>(w.n * w.k));
  for (int64_t row = 0; row < w.n; ++row) decode_row(w, 0, row, values.data() + row * w.k);
  return values;
}

void expect_loads(const SyntheticCheckpoint& synthetic, const LoadOptions& options = {}) {
  const TempDirectory directory;
  synthetic.write(directory);
  Loaded model = load(directory.path(), options);
  auto modules = modules_of(model);
  EXPECT_EQ(modules.size(), synthetic.expected.size());
  for (const auto& [name, want] : synthetic.expected) {
    const WeightMatrix& got = modules[name];
    ASSERT_TRUE(got.defined()) << name;
    EXPECT_EQ(weight_format_name(got.format), weight_format_name(want.format)) << name;
    ASSERT_EQ(decode(got), decode(want)) << name;
  }
  for (const VectorParameter& p :
       list_parameters(model.config, true, model.loaded.weights).vectors) {
    const auto* data = p.target->data_as<float>();
    EXPECT_EQ(std::vector<float>(data, data + p.elements()), synthetic.floats.at(p.name)) << p.name;
    EXPECT_EQ(reinterpret_cast<uintptr_t>(data) % 64, 0u);
  }
  EXPECT_THAT(model.loaded.report.warnings, ElementsAre());
}

TEST(LoadWeights, ReadsFloatsOfEveryType) {
  SyntheticCheckpoint synthetic;
  synthetic.pack_floats("lm_head", DType::kF32);
  synthetic.pack_floats("layers.0.linear_attn.in_proj_z", DType::kF16);
  expect_loads(synthetic);
}

TEST(LoadWeights, ReadsFp8WithEitherScaleType) {
  SyntheticCheckpoint synthetic;
  synthetic.set_quantization(fp8_config());
  for (const std::string& module : synthetic.quantisable_modules()) synthetic.pack_fp8(module);
  synthetic.pack_fp8("mtp.layers.0.self_attn.q_proj", DType::kF32);
  expect_loads(synthetic);
}

struct Int4Case {
  const char* name;
  ZeroStyle config_style;
  Int4Packing packing;
};
void PrintTo(const Int4Case& tested, std::ostream* out) { *out << tested.name; }
class Int4Layouts : public testing::TestWithParam<Int4Case> {};

TEST_P(Int4Layouts, GiveTheSameCanonicalRows) {
  const Int4Case& tested = GetParam();
  SyntheticCheckpoint synthetic;
  synthetic.set_quantization(auto_round_config(tested.config_style, tested.packing.symmetric));
  for (const std::string& module : synthetic.quantisable_modules())
    synthetic.pack_int4(module, tested.packing);
  expect_loads(synthetic);
}

INSTANTIATE_TEST_SUITE_P(
    All, Int4Layouts,
    testing::Values(Int4Case{"gptq_v1", ZeroStyle::kMinusOne, {}},
                    Int4Case{"gptq_v2", ZeroStyle::kPlain, {.zeros = ZeroStyle::kPlain}},
                    Int4Case{"either_v1", ZeroStyle::kEither, {}},
                    Int4Case{"either_v2", ZeroStyle::kEither, {.zeros = ZeroStyle::kPlain}},
                    Int4Case{"asymmetric_v1", ZeroStyle::kMinusOne, {.symmetric = false}},
                    Int4Case{"asymmetric_v2",
                             ZeroStyle::kPlain,
                             {.zeros = ZeroStyle::kPlain, .symmetric = false}},
                    Int4Case{"group_index", ZeroStyle::kMinusOne, {.group_index = true}},
                    Int4Case{"bf16_scales", ZeroStyle::kMinusOne, {.scale_dtype = DType::kBF16}},
                    Int4Case{"f32_scales", ZeroStyle::kMinusOne, {.scale_dtype = DType::kF32}}),
    [](const auto& tested) { return tested.param.name; });

// The worked example of docs/formats/int4_group128.md, as bytes of a file.
TEST(LoadWeights, UnpacksTheWorkedExample) {
  SyntheticCheckpoint synthetic;
  synthetic.set_quantization(auto_round_config());
  const std::string module = "layers.1.self_attn.k_proj";
  synthetic.pack_int4(module);
  const uint32_t word = 0xC3F98710u;  // output 3, inputs 8 … 15
  const uint16_t scale = 0xB400;      // −0.25
  TensorData& codes = synthetic.tensor(module + ".qweight");
  std::memcpy(codes.bytes.data() + (1 * codes.shape[1] + 3) * 4, &word, 4);
  std::memcpy(synthetic.tensor(module + ".scales").bytes.data() + 3 * 2, &scale, 2);
  const TempDirectory directory;
  synthetic.write(directory);
  Loaded model = load(directory.path());
  std::vector<float> row(128);
  decode_row(modules_of(model)[module], 0, 3, row.data());
  EXPECT_EQ(std::vector<float>(row.begin() + 8, row.begin() + 16),
            (std::vector<float>{2, 1.75, 0.25, -0.0f, -0.25, -1.75, 1.25, -1}));
}

// One asymmetric expert gives its stack zero points; the others' become 8.
TEST(LoadWeights, MixesSymmetricAndAsymmetricExperts) {
  SyntheticCheckpoint synthetic;
  synthetic.set_quantization(auto_round_config());
  for (int e = 0; e < 4; ++e)
    synthetic.pack_int4(str_cat("layers.0.mlp.experts.", e, ".up_proj"), {.symmetric = e != 2});
  Json quant = *synthetic.config.find("quantization_config");
  quant.set("extra_config", Json::parse(R"({"model.language_model.layers.0.mlp.experts.2.up_proj":
                            {"sym": false}})")
                                .value());
  synthetic.config.set("quantization_config", quant);
  expect_loads(synthetic);
}

TEST(LoadWeights, ReadsTheHybrid) {
  SyntheticCheckpoint synthetic;
  synthetic.set_quantization(auto_round_config());
  Json extra;
  for (const std::string& module : synthetic.quantisable_modules()) synthetic.pack_int4(module);
  for (int layer = 0; layer < 2; ++layer) {
    for (const char* part : {"gate_proj", "up_proj", "down_proj"}) {
      const std::string module = str_cat("layers.", layer, ".mlp.shared_expert.", part);
      synthetic.pack_fp8(module);
      extra.set("model.language_model." + module, Json::parse(R"({"bits": 16})").value());
    }
  }
  Json quant = *synthetic.config.find("quantization_config");
  quant.set("extra_config", extra);
  synthetic.config.set("quantization_config", quant);
  expect_loads(synthetic);
}

// Newer exporters pack the drafting layer too, mtp.fc with it.
TEST(LoadWeights, ReadsAnInt4DraftingLayer) {
  SyntheticCheckpoint synthetic;
  synthetic.set_quantization(auto_round_config());
  for (const char* module : {"mtp.fc", "mtp.layers.0.self_attn.o_proj"})
    synthetic.pack_int4(module);
  expect_loads(synthetic);
}

TEST(LoadWeights, ReadsFusedExperts) {
  SyntheticCheckpoint synthetic;
  synthetic.fuse_experts();
  expect_loads(synthetic);
}

TEST(LoadWeights, ReadsEveryPrefix) {
  for (const char* prefix : {"model.", "language_model.model.", ""}) {
    SyntheticCheckpoint synthetic;
    synthetic.rename("model.language_model.", prefix);
    if (std::string(prefix).starts_with("language_model"))
      synthetic.rename("lm_head.", "language_model.lm_head.");
    expect_loads(synthetic);
  }
  SyntheticCheckpoint synthetic;
  synthetic.rename("mtp.", "model.mtp.");
  expect_loads(synthetic);
}

TEST(LoadWeights, ReadsTheTransposedKernelShapeOfMlx) {
  SyntheticCheckpoint synthetic;
  synthetic.tensor("layers.0.linear_attn.conv1d.weight").shape = {256, 4, 1};
  expect_loads(synthetic);
}

TEST(LoadWeights, ReadsDenseModelsAndTiedHeads) {
  SyntheticCheckpoint dense(/*moe=*/false);
  expect_loads(dense);
  dense.config.set("tie_word_embeddings", true);
  dense.erase("lm_head.weight");
  dense.expected.erase("lm_head");
  expect_loads(dense);
  const TempDirectory directory;
  dense.write(directory);
  const Loaded model = load(directory.path());
  EXPECT_EQ(model.loaded.weights.head.values.data(), model.loaded.weights.embed.values.data());
}

// The head in int8: of floats of every type, a second matrix where it is tied, and never of codes.
TEST(LoadWeights, MakesAnInt8HeadOfFloats) {
  for (const DType dtype : {DType::kBF16, DType::kF16, DType::kF32}) {
    SyntheticCheckpoint synthetic;
    synthetic.pack_floats("lm_head", dtype);
    synthetic.expected["lm_head"] = encode_int8(synthetic.expected["lm_head"]).value();
    expect_loads(synthetic, {.head = LmHead::kInt8});
  }
}

TEST(LoadWeights, MakesAnInt8HeadBesideATiedEmbedding) {
  SyntheticCheckpoint tied;
  tied.config.set("tie_word_embeddings", true);
  tied.erase("lm_head.weight");
  tied.expected.erase("lm_head");
  expect_loads(tied, {.head = LmHead::kInt8});
  const TempDirectory directory;
  tied.write(directory);
  const Loaded plain = load(directory.path());
  const Loaded model = load(directory.path(), {.head = LmHead::kInt8});
  const WeightMatrix& head = model.loaded.weights.head;
  EXPECT_EQ(head.format, WeightFormat::kInt8Row);
  EXPECT_EQ(decode(head), decode(encode_int8(model.loaded.weights.embed).value()));
  EXPECT_EQ(model.loaded.report.stored_bytes,
            plain.loaded.report.stored_bytes + head.n * (head.k + 4));
  EXPECT_EQ(model.loaded.report.file_bytes, plain.loaded.report.file_bytes);
}

TEST(LoadWeights, LeavesAQuantisedHeadAsItIs) {
  SyntheticCheckpoint synthetic;
  synthetic.set_quantization(R"({"quant_method": "fp8", "weight_block_size": [128, 128],
                                 "activation_scheme": "dynamic"})");
  synthetic.pack_fp8("lm_head");
  for (const std::string& module : synthetic.quantisable_modules()) synthetic.pack_fp8(module);
  expect_loads(synthetic, {.head = LmHead::kInt8});
}

TEST(LoadWeights, RefusesAnInt8HeadOfWhatIsNotFinite) {
  SyntheticCheckpoint synthetic;
  auto& bytes = synthetic.tensor("lm_head.weight").bytes;
  bytes[2 * 130] = std::byte{0x80};  // element [1, 2], infinity
  bytes[2 * 130 + 1] = std::byte{0x7F};
  const TempDirectory directory;
  synthetic.write(directory);
  HostDevice device;
  const auto checkpoint = Checkpoint::open(directory.path()).value();
  const auto config = ModelConfig::parse(checkpoint.config()).value();
  const auto loaded = load_weights(checkpoint, config, device, {.head = LmHead::kInt8});
  ASSERT_FALSE(loaded);
  EXPECT_THAT(loaded.error().message, HasSubstr("lm_head.weight: element [1, 2] is not finite"));
}

TEST(LoadWeights, GivesTheSameBytesWhateverTheThreadsAndTheIo) {
  SyntheticCheckpoint synthetic;
  synthetic.set_quantization(auto_round_config());
  for (const std::string& module : synthetic.quantisable_modules()) synthetic.pack_int4(module);
  for (const int threads : {1, 2, 7})
    for (const bool direct : {false, true})
      expect_loads(synthetic, {.threads = threads, .direct_io = direct});
}

TEST(LoadWeights, IgnoresWhatATextModelHasNoUseFor) {
  SyntheticCheckpoint synthetic;
  synthetic.add("model.visual.pos_embed.weight", "BF16", {3, 5, 1, 1, 2});
  synthetic.add("layers.1.self_attn.rotary_emb.inv_freq", "F32", {8});
  synthetic.add("layers.1.self_attn.k_proj.k_scale", "F32", {});
  synthetic.add("layers.1.self_attn.k_proj.input_scale", "F8_E8M0", {1});
  expect_loads(synthetic);
}

TEST(LoadWeights, LeavesTheDraftingLayerOutWhenAskedTo) {
  const SyntheticCheckpoint synthetic;
  const TempDirectory directory;
  synthetic.write(directory);
  EXPECT_TRUE(load(directory.path()).loaded.weights.mtp.has_value());
  EXPECT_FALSE(load(directory.path(), {.mtp = MtpUse::kSkip}).loaded.weights.mtp.has_value());
}

TEST(LoadWeights, TellsOfItsPlanAndStopsWhereThatIsRefused) {
  const SyntheticCheckpoint synthetic;
  const TempDirectory directory;
  synthetic.write(directory);
  const auto checkpoint = Checkpoint::open(directory.path()).value();
  const auto config = ModelConfig::parse(checkpoint.config()).value();
  HostDevice none(0);  // has no memory for a weight: asked before that is noticed
  int64_t planned = 0;
  const auto refused =
      load_weights(checkpoint, config, none, {.on_plan = [&](const LoadPlan& plan) -> Status {
                     planned = stored_bytes(plan, none);
                     return Error{ErrorCode::kInvalidArgument, "not today"};
                   }});
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().message, "not today");
  HostDevice enough;
  EXPECT_EQ(load_weights(checkpoint, config, enough).value().report.stored_bytes, planned);
}

TEST(LoadWeights, ReportsProgressAndSpeed) {
  const SyntheticCheckpoint synthetic;
  const TempDirectory directory;
  synthetic.write(directory);
  int64_t last = -1, total = 0;
  const Loaded model = load(directory.path(), {.progress = [&](int64_t done, int64_t all) {
                              EXPECT_GE(done, last);
                              last = done;
                              total = all;
                            }});
  EXPECT_EQ(last, total);
  EXPECT_EQ(total, model.loaded.report.file_bytes);
  EXPECT_GT(model.loaded.report.bytes_per_second(), 0);
  EXPECT_GE(model.loaded.report.stored_bytes, total);
}

}  // namespace
}  // namespace pewter
