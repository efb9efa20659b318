// Whatever is wrong with a checkpoint stops the load, and the message names file, tensor and
// reason.
#include <gmock/gmock.h>

#include <cstring>
#include <functional>

#include "model/qwen35/load.h"
#include "model/qwen35/testing/host_device.h"
#include "model/qwen35/testing/synthetic_checkpoint.h"

namespace pewter {
namespace {

using testing::HasSubstr;

std::string load_error(const SyntheticCheckpoint& synthetic, const LoadOptions& options = {}) {
  const TempDirectory directory;
  synthetic.write(directory);
  HostDevice device;
  const auto checkpoint = Checkpoint::open(directory.path());
  if (!checkpoint) return checkpoint.error().message;
  const auto config = ModelConfig::parse(checkpoint->config());
  if (!config) return config.error().message;
  const auto loaded = load_weights(*checkpoint, *config, device, options);
  return loaded ? "loaded" : loaded.error().message;
}

constexpr const char* kInt4 = "layers.1.self_attn.k_proj";  // [64, 128]
constexpr const char* kFile = "model.safetensors: model.language_model.";

void poke(TensorData& tensor, size_t byte, std::initializer_list<unsigned> bytes) {
  for (const unsigned b : bytes) tensor.bytes[byte++] = static_cast<std::byte>(b);
}

struct Rule {
  const char* name;
  std::function<void(SyntheticCheckpoint&)> spoil;
  std::string message;
};
void PrintTo(const Rule& rule, std::ostream* out) { *out << rule.name; }
class RejectRules : public testing::TestWithParam<Rule> {};

TEST_P(RejectRules, StopTheLoadAndSayWhy) {
  SyntheticCheckpoint synthetic;
  GetParam().spoil(synthetic);
  EXPECT_THAT(load_error(synthetic), HasSubstr(GetParam().message));
}

constexpr auto kName = [](const auto& tested) { return std::string(tested.param.name); };

INSTANTIATE_TEST_SUITE_P(
    Structure, RejectRules,
    testing::Values(
        Rule{"missing_linear", [](auto& s) { s.erase("layers.0.linear_attn.out_proj.weight"); },
             "layers.0.linear_attn.out_proj: is missing"},
        Rule{"missing_vector", [](auto& s) { s.erase("layers.0.linear_attn.A_log"); },
             "layers.0.linear_attn.A_log: is missing"},
        Rule{"missing_expert", [](auto& s) { s.erase("layers.1.mlp.experts.3.up_proj.weight"); },
             "layers.1.mlp.experts.3.up_proj: is missing"},
        Rule{"missing_head", [](auto& s) { s.erase("lm_head.weight"); }, "lm_head: is missing"},
        Rule{"partial_mtp", [](auto& s) { s.erase("mtp.fc.weight"); }, "mtp.fc: is missing"},
        Rule{"head_of_tied_model", [](auto& s) { s.config.set("tie_word_embeddings", true); },
             "model.safetensors: lm_head.weight: is stored, but tie_word_embeddings is true"},
        Rule{"leftover", [](auto& s) { s.add("layers.0.mlp.extra.weight", "BF16", {1}); },
             std::string(kFile) + "layers.0.mlp.extra.weight: belongs to no parameter"},
        Rule{"bias", [](auto& s) { s.add("layers.1.self_attn.k_proj.bias", "BF16", {64}); },
             "k_proj.bias: belongs to no parameter"},
        Rule{"shape",
             [](auto& s) { s.tensor("layers.1.self_attn.k_proj.weight").shape = {128, 64}; },
             "k_proj.weight: has shape [128, 64], want [64, 128]"},
        Rule{"vector_shape",
             [](auto& s) { s.tensor("layers.0.input_layernorm.weight").shape = {1, 128}; },
             "input_layernorm.weight: has shape [1, 128], want [128]"},
        Rule{"vector_type", [](auto& s) { s.add("layers.0.linear_attn.A_log", "I32", {2}); },
             "A_log: is I32 [2], want BF16, F16 or F32"},
        Rule{"unknown_type_needed", [](auto& s) { s.add("norm.weight", "F4", {128}); },
             "norm.weight: is F4 [128], want BF16, F16 or F32"},
        Rule{"linear_type",
             [](auto& s) { s.add("layers.1.self_attn.k_proj.weight", "I8", {64, 128}); },
             "k_proj.weight: is I8, want BF16, F16, F32 or F8_E4M3"},
        Rule{"both_expert_layouts",
             [](auto& s) { s.add("layers.0.mlp.experts.down_proj", "BF16", {4, 128, 128}); },
             "experts.0.down_proj.weight: experts are stored twice: fused and one by one"},
        Rule{"fused_count",
             [](auto& s) {
               s.fuse_experts();
               s.add("layers.0.mlp.experts.down_proj", "BF16", {3, 128, 128});
             },
             "experts.down_proj: has shape [3, 128, 128], want [4, 128, 128]"},
        Rule{"fused_transposed",
             [](auto& s) {
               s.fuse_experts();
               s.tensor("layers.0.mlp.experts.gate_up_proj").shape = {4, 128, 256};
             },
             "want [4, 256, 128]: transposed experts are not supported"},
        Rule{"fused_half",
             [](auto& s) {
               s.fuse_experts();
               s.erase("layers.0.mlp.experts.gate_up_proj");
             },
             "layers.0.mlp.experts.gate_up_proj: is missing"}),
    kName);

void int4(SyntheticCheckpoint& s, const Int4Packing& packing = {}) {
  s.set_quantization(auto_round_config());
  s.pack_int4(kInt4, packing);
}
void set_extra(SyntheticCheckpoint& s, const std::string& entry) {
  Json quant = *s.config.find("quantization_config");
  quant.set("extra_config",
            Json::parse(str_cat("{\"model.language_model.", kInt4, "\": ", entry, "}")).value());
  s.config.set("quantization_config", quant);
}
void hybrid_part(SyntheticCheckpoint& s) {
  s.set_quantization(auto_round_config());
  s.pack_fp8("layers.0.mlp.shared_expert.gate_proj");
}
std::string part(const char* suffix) { return str_cat(kInt4, ".", suffix); }

INSTANTIATE_TEST_SUITE_P(
    Int4, RejectRules,
    testing::Values(
        Rule{"no_scales",
             [](auto& s) {
               int4(s);
               s.erase(part("scales"));
             },
             "k_proj: its .scales is missing"},
        Rule{"no_zeros",
             [](auto& s) {
               int4(s);
               s.erase(part("qzeros"));
             },
             "k_proj: its .qzeros is missing"},
        Rule{"twice",
             [](auto& s) {
               int4(s);
               s.add(part("weight"), "BF16", {64, 128});
             },
             "k_proj.weight: is stored twice: as .weight and as .qweight"},
        Rule{"awq",
             [](auto& s) {
               int4(s);
               s.add(part("qweight"), "I32", {128, 8});
             },
             "k_proj.qweight: the AWQ layout [k, n/8] is not supported"},
        Rule{"shape",
             [](auto& s) {
               int4(s);
               s.add(part("qweight"), "I32", {16, 32});
             },
             "k_proj.qweight: has shape [16, 32], want [16, 64]"},
        Rule{"scales_shape",
             [](auto& s) {
               int4(s);
               s.add(part("scales"), "F16", {64, 1});
             },
             "k_proj.scales: has shape [64, 1], want [1, 64]"},
        Rule{"zeros_shape",
             [](auto& s) {
               int4(s);
               s.add(part("qzeros"), "I32", {8, 1});
             },
             "k_proj.qzeros: has shape [8, 1], want [1, 8]"},
        Rule{"scales_type",
             [](auto& s) {
               int4(s);
               s.add(part("scales"), "I16", {1, 64});
             },
             "k_proj.scales: is I16, want F16, BF16 or F32"},
        Rule{"qweight_type",
             [](auto& s) {
               int4(s);
               s.add(part("qweight"), "U32", {16, 64});
             },
             "k_proj.qweight: is U32, want I32"},
        Rule{"router",
             [](auto& s) {
               s.set_quantization(auto_round_config());
               s.add("layers.0.mlp.gate.qweight", "I32", {16, 4});
               s.add("layers.0.mlp.gate.qzeros", "I32", {1, 1});
               s.add("layers.0.mlp.gate.scales", "F16", {1, 4});
               s.erase("layers.0.mlp.gate.weight");
             },
             "mlp.gate.qweight: must not be quantised, and is INT4"},
        Rule{"no_config", [](auto& s) { s.pack_int4(kInt4); },
             "k_proj.qweight: is int4_group128, but config.json has no quantization_config"},
        Rule{"fp8_config",
             [](auto& s) {
               s.pack_int4(kInt4);
               s.set_quantization(fp8_config());
             },
             "k_proj.qweight: is int4_group128, but quant_method is fp8"},
        Rule{"config_says_float",
             [](auto& s) {
               int4(s);
               set_extra(s, R"({"bits": 16, "data_type": "fp"})");
             },
             "k_proj.qweight: is int4_group128, but extra_config"},
        Rule{"config_says_int4",
             [](auto& s) {
               s.set_quantization(auto_round_config());
               set_extra(s, R"({"bits": 4})");
             },
             "k_proj.weight: is stored as bf16, but extra_config"},
        Rule{"config_says_8_bits",
             [](auto& s) {
               int4(s);
               set_extra(s, R"({"bits": 8})");
             },
             "asks for {\"bits\":8}, which is not supported"},
        Rule{"outside_blocks",
             [](auto& s) {
               s.set_quantization(auto_round_config());
               s.pack_int4("lm_head");
             },
             "lm_head.qweight: is int4_group128, but block_name_to_quantize"},
        Rule{"mixed_experts",
             [](auto& s) {
               s.set_quantization(auto_round_config());
               s.pack_int4("layers.0.mlp.experts.2.up_proj");
             },
             "experts.2.up_proj.qweight: is int4_group128 with F16 scales where "
             "layers.0.mlp.experts.0.up_proj is bf16: the experts of a layer must share one "
             "format"},
        Rule{"activation_order",
             [](auto& s) {
               int4(s, {.group_index = true});
               poke(s.tensor(part("g_idx")), 4 * 77, {3});
             },
             "k_proj.g_idx: input 77 is in group 3: activation order is not supported"},
        Rule{"v2_labelled_v1", [](auto& s) { int4(s, {.zeros = ZeroStyle::kPlain}); },
             "k_proj.qzeros: zero points are stored as 8, but the config says they are stored as z "
             "- 1"},
        Rule{"v1_labelled_v2",
             [](auto& s) {
               int4(s);
               s.set_quantization(auto_round_config(ZeroStyle::kPlain));
             },
             "k_proj.qzeros: zero points are stored as 7"},
        Rule{"asymmetric_labelled_symmetric",
             [](auto& s) {
               int4(s);
               poke(s.tensor(part("qzeros")), 4 * 5, {0x76});
             },
             "k_proj.qzeros: word [0, 5] is not the zero point of symmetric weights"},
        Rule{"mixed_patterns",
             [](auto& s) {
               int4(s);
               s.set_quantization(auto_round_config(ZeroStyle::kEither));
               poke(s.tensor(part("qzeros")), 4 * 5, {0x88, 0x88, 0x88, 0x88});
             },
             "k_proj.qzeros: word [0, 5] is not the zero point"},
        Rule{"infinite_scale",
             [](auto& s) {
               int4(s);
               poke(s.tensor(part("scales")), 2 * 9, {0x00, 0x7C});
             },
             "k_proj.scales: scale [0, 9] is not finite"},
        Rule{"nan_scale",
             [](auto& s) {
               int4(s);
               poke(s.tensor(part("scales")), 2 * 9, {0x01, 0xFE});
             },
             "k_proj.scales: scale [0, 9] is not finite"}),
    kName);

void fp8(SyntheticCheckpoint& s) {
  s.set_quantization(fp8_config());
  s.pack_fp8("layers.0.linear_attn.in_proj_qkv");  // [256, 128], scales [2, 1]
}
TensorData& fp8_tensor(SyntheticCheckpoint& s, const char* suffix) {
  return s.tensor(str_cat("layers.0.linear_attn.in_proj_qkv.", suffix));
}

INSTANTIATE_TEST_SUITE_P(
    Fp8AndFloats, RejectRules,
    testing::Values(
        Rule{"no_scale",
             [](auto& s) {
               fp8(s);
               s.erase("layers.0.linear_attn.in_proj_qkv.weight_scale_inv");
             },
             "in_proj_qkv.weight: is FP8 without its .weight_scale_inv"},
        Rule{"no_weight",
             [](auto& s) {
               fp8(s);
               s.erase("layers.0.linear_attn.in_proj_qkv.weight");
             },
             "in_proj_qkv.weight_scale_inv: there is a scale and no .weight"},
        Rule{"scale_of_floats",
             [](auto& s) { s.add("layers.0.mlp.gate.weight_scale_inv", "BF16", {1, 1}); },
             "gate.weight_scale_inv: a scale beside a weight that is BF16, not F8_E4M3"},
        Rule{"scale_shape",
             [](auto& s) {
               fp8(s);
               s.add("layers.0.linear_attn.in_proj_qkv.weight_scale_inv", "BF16", {1, 1});
             },
             "weight_scale_inv: has shape [1, 1], want [2, 1]"},
        Rule{"per_channel",
             [](auto& s) {
               fp8(s);
               s.add("layers.0.linear_attn.in_proj_qkv.weight_scale", "BF16", {256, 1});
             },
             "FP8 weights scaled per channel or tensor are not supported"},
        Rule{"nvfp4",
             [](auto& s) {
               s.add("layers.1.self_attn.k_proj.weight_packed", "U8", {64, 64});
               s.add("layers.1.self_attn.k_proj.weight_scale", "F8_E4M3", {64, 8});
             },
             "k_proj.weight_packed: NVFP4 (compressed-tensors) weights are not supported"},
        Rule{"modelopt", [](auto& s) { s.add("layers.1.self_attn.k_proj.weight", "U8", {64, 64}); },
             "k_proj.weight: NVFP4 (ModelOpt) weights are not supported"},
        Rule{"pack_quantized",
             [](auto& s) {
               s.erase("layers.1.self_attn.k_proj.weight");
               s.add("layers.1.self_attn.k_proj.weight_packed", "I32", {64, 16});
             },
             "compressed-tensors pack-quantized weights are not supported"},
        Rule{"listed_as_float",
             [](auto& s) {
               s.set_quantization(fp8_config());
               s.pack_fp8("lm_head");
             },
             "lm_head.weight: is fp8_block128, but modules_to_not_convert says that it is not"},
        Rule{"fp8_router",
             [](auto& s) {
               s.set_quantization(fp8_config());
               s.pack_fp8("layers.1.mlp.gate");
             },
             "mlp.gate.weight: must not be quantised, and is FP8"},
        Rule{"static_activations",
             [](auto& s) {
               fp8(s);
               Json quant = *s.config.find("quantization_config");
               quant.set("activation_scheme", "static");
               s.config.set("quantization_config", quant);
             },
             "activation_scheme is static, and there is no .input_scale"},
        Rule{"half_a_hybrid", hybrid_part, "1 of 6 shared expert weights are FP8: all or none"},
        Rule{"nan_code",
             [](auto& s) {
               fp8(s);
               poke(fp8_tensor(s, "weight"), 128 * 200 + 5, {0xFF});
             },
             "in_proj_qkv.weight: element [200, 5] is NaN"},
        Rule{"negative_scale",
             [](auto& s) {
               fp8(s);
               poke(fp8_tensor(s, "weight_scale_inv"), 2, {0x00, 0xBF});
             },
             "weight_scale_inv: scale [1, 0] is -0.5"},
        Rule{"infinite_scale_fp8",
             [](auto& s) {
               fp8(s);
               poke(fp8_tensor(s, "weight_scale_inv"), 2, {0x80, 0x7F});
             },
             "weight_scale_inv: scale [1, 0] is inf"},
        Rule{"zero_scale",
             [](auto& s) {
               fp8(s);
               poke(fp8_tensor(s, "weight_scale_inv"), 2, {0, 0});
             },
             "weight_scale_inv: scale [1, 0] is 0 over weights that are not"},
        Rule{"nan_float",
             [](auto& s) { poke(s.tensor("lm_head.weight"), 2 * (128 * 3 + 7), {0xC0, 0x7F}); },
             "model.safetensors: lm_head.weight: element [3, 7] is not finite"},
        Rule{"infinite_fused",
             [](auto& s) {
               s.fuse_experts();  // expert 1, row 130 of gate_up: row 386 of the tensor
               poke(s.tensor("layers.0.mlp.experts.gate_up_proj"), 2 * (128 * 386 + 1),
                    {0x80, 0xFF});
             },
             "experts.gate_up_proj: element [386, 1] is not finite"},
        Rule{"nan_vector",
             [](auto& s) { poke(s.tensor("layers.0.linear_attn.dt_bias"), 2, {0xC0, 0x7F}); },
             "dt_bias: element 1 is not finite"}),
    kName);

TEST(LoadRejects, ListEveryFaultOfTheDataAtTheEnd) {
  SyntheticCheckpoint s;
  fp8(s);
  poke(fp8_tensor(s, "weight"), 3, {0x7F});
  poke(s.tensor("lm_head.weight"), 2, {0xC0, 0x7F});
  poke(s.tensor("norm.weight"), 2, {0xC0, 0x7F});
  const std::string message = load_error(s, {.threads = 3});
  EXPECT_THAT(message, HasSubstr("3 faults"));
  for (const char* name : {"lm_head.weight", "in_proj_qkv.weight", "norm.weight"})
    EXPECT_THAT(message, HasSubstr(name));
}

// Header faults are found before the first byte of a weight is read.
TEST(LoadRejects, ReportHeaderFaultsWithoutReadingData) {
  SyntheticCheckpoint s;
  s.erase("norm.weight");
  poke(s.tensor("lm_head.weight"), 2, {0xC0, 0x7F});
  bool read = false;
  const std::string message = load_error(s, {.progress = [&](int64_t, int64_t) { read = true; }});
  EXPECT_THAT(message, HasSubstr("1 fault\n"));
  EXPECT_FALSE(read);
}

TEST(LoadRejects, NeedTheDraftingLayerWhenSpeculating) {
  SyntheticCheckpoint s;
  std::erase_if(s.tensors, [](const auto& entry) { return entry.first.starts_with("mtp."); });
  EXPECT_EQ(load_error(s), "loaded");
  EXPECT_THAT(load_error(s, {.mtp = MtpUse::kRequired}),
              HasSubstr("mtp: speculation needs the MTP layer, and the checkpoint has none"));
}

TEST(LoadRejects, RefuseWhatDoesNotFitWithTheNumbers) {
  const TempDirectory directory;
  SyntheticCheckpoint().write(directory);
  HostDevice device(/*available=*/1'000'000);
  const auto checkpoint = Checkpoint::open(directory.path()).value();
  const auto config = ModelConfig::parse(checkpoint.config()).value();
  const auto loaded = load_weights(checkpoint, config, device);
  ASSERT_FALSE(loaded);
  EXPECT_EQ(loaded.error().code, ErrorCode::kResourceExhausted);
  EXPECT_THAT(loaded.error().message, HasSubstr("1.00 MB (1000000 bytes) are available"));
  EXPECT_THAT(loaded.error().message, HasSubstr("the weights need "));
}

TEST(LoadRejects, WarnOfZeroScalesAndOfGgufConventions) {
  SyntheticCheckpoint s;
  int4(s);
  poke(s.tensor(part("scales")), 2 * 9, {0, 0});
  for (int layer = 0; layer < 2; ++layer) {
    TensorData& norm = s.tensor(str_cat("layers.", layer, ".input_layernorm.weight"));
    for (size_t i = 0; i < norm.bytes.size(); i += 2) poke(norm, i, {0x80, 0x3F});  // 1.0
  }
  poke(s.tensor("layers.0.linear_attn.A_log"), 0, {0x00, 0xBE, 0x80, 0xBD});  // −0.125, −0.0625
  const TempDirectory directory;
  s.write(directory);
  HostDevice device;
  const auto checkpoint = Checkpoint::open(directory.path()).value();
  const auto config = ModelConfig::parse(checkpoint.config()).value();
  const auto loaded = load_weights(checkpoint, config, device).value();
  EXPECT_THAT(loaded.report.warnings,
              testing::ElementsAre(HasSubstr("k_proj.scales: scale [0, 9] is 0"),
                                   HasSubstr("input_layernorm weights are about 1 too high"),
                                   HasSubstr("A_log is in (-0.5, 0)")));
}

}  // namespace
}  // namespace pewter
