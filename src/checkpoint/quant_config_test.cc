#include "checkpoint/quant_config.h"

#include <gmock/gmock.h>

namespace pewter {
namespace {

using testing::HasSubstr;
using Claim = ModuleQuant::Claim;

Result<QuantConfig> parse(const std::string& quantization) {
  return QuantConfig::parse(Json::parse("{\"quantization_config\": " + quantization + "}").value());
}
std::string auto_round(const std::string& more) {
  return R"({"quant_method": "auto-round", "bits": 4, "group_size": 128)" + more + "}";
}
std::string gptq(const std::string& more) {
  return R"({"quant_method": "gptq", "bits": 4, "group_size": 128)" + more + "}";
}

TEST(QuantConfig, IsNoneWithoutASection) {
  EXPECT_EQ(QuantConfig::parse(Json(Json::Object{})).value().method(), QuantMethod::kNone);
}

TEST(QuantConfig, TellsHowZeroPointsAreStored) {
  const std::pair<std::string, ZeroStyle> cases[] = {
      {auto_round(R"(, "packing_format": "auto_round:auto_gptq")"), ZeroStyle::kMinusOne},
      {auto_round(R"(, "packing_format": "auto_round")"), ZeroStyle::kPlain},
      {auto_round(R"(, "packing_format": "auto_round:gptqmodel")"), ZeroStyle::kEither},
      {auto_round(R"(, "packing_format": "auto_round:gptqmodel", "checkpoint_format": "gptq_v2",
                     "sym": false)"),
       ZeroStyle::kPlain},
      {auto_round(R"(, "backend": "auto_round:gptq:exllamav2")"), ZeroStyle::kMinusOne},
      {auto_round(R"(, "backend": "auto_round:exllamav2")"), ZeroStyle::kEither},
      {gptq(""), ZeroStyle::kMinusOne},
      {gptq(R"(, "checkpoint_format": "gptq")"), ZeroStyle::kMinusOne},
      {gptq(R"(, "checkpoint_format": "gptq_v2")"), ZeroStyle::kPlain}};
  for (const auto& [text, style] : cases) {
    const auto config = parse(text);
    ASSERT_TRUE(config) << text << config.error().message;
    EXPECT_EQ(config->zero_style(), style) << text;
  }
}

TEST(QuantConfig, RefusesByName) {
  const std::pair<std::string, const char*> cases[] = {
      {R"({"quant_method": "awq"})", "quant_method \"awq\" is not supported"},
      {R"({"quant_method": "compressed-tensors", "format": "nvfp4-pack-quantized"})",
       "\"compressed-tensors\" (nvfp4-pack-quantized) is not supported"},
      {R"({"quant_method": "modelopt"})", "quant_method \"modelopt\" is not supported"},
      {R"({"bits": 4})", "has no quant_method"},
      {R"([])", "is no object"},
      {R"({"quant_method": "gptq", "bits": 8, "group_size": 128})", "bits is not 4"},
      {R"({"quant_method": "gptq", "bits": 4, "group_size": -1})", "group_size is not 128"},
      {gptq(R"(, "desc_act": true)"), "desc_act is true"},
      {gptq(R"(, "checkpoint_format": "marlin")"), "checkpoint_format \"marlin\""},
      {gptq(R"(, "sym": 1)"), "sym is neither true nor false"},
      {auto_round(R"(, "packing_format": "auto_round:auto_awq")"), "the AWQ layout"},
      {auto_round(R"(, "packing_format": "new")"), "packing_format \"new\" is not known"},
      {auto_round(R"(, "data_type": "nv_fp")"), "data_type \"nv_fp\" is not supported"},
      {auto_round(R"(, "packing_format": "auto_round:gptqmodel", "sym": false)"),
       "does not say whether zero points are stored as z or z - 1"},
      {auto_round(R"(, "extra_config": {"a[": {"bits": 16}})"), "is no regular expression"},
      {R"({"quant_method": "fp8"})", "weight_block_size is not [128, 128]"},
      {R"({"quant_method": "fp8", "weight_block_size": [64, 128]})", "is not [128, 128]"},
      {R"({"quant_method": "fp8", "weight_block_size": [128, 128], "fmt": "e5m2"})", "fmt"},
      {R"({"quant_method": "fp8", "weight_block_size": [128, 128], "activation_scheme": "x"})",
       "neither dynamic nor static"}};
  for (const auto& [text, message] : cases) {
    const auto config = parse(text);
    ASSERT_FALSE(config) << text;
    EXPECT_THAT(config.error().message, HasSubstr(message));
  }
}

TEST(QuantConfig, LooksUpExtraConfigByNameThenByPattern) {
  const auto config = parse(auto_round(R"(, "sym": true,
      "block_name_to_quantize": "model.language_model.layers",
      "extra_config": {
        "model.language_model.layers.0.mlp.gate_proj": {"bits": 16, "data_type": "fp"},
        "model.language_model.layers.1.mlp.gate_proj": {"bits": 4, "sym": false},
        "model.language_model.layers.3.mlp.gate_proj": {"bits": 8},
        ".*layers\\.2\\..*": {"bits": 16, "data_type": "float"}},
      "packing_format": "auto_round:auto_gptq")"))
                          .value();
  EXPECT_EQ(config.module("layers.0.mlp.gate_proj").claim, Claim::kFloat);
  EXPECT_THAT(config.module("layers.0.mlp.gate_proj").reason, HasSubstr("extra_config"));
  EXPECT_EQ(config.module("layers.1.mlp.gate_proj").claim, Claim::kQuantised);
  EXPECT_FALSE(config.module("layers.1.mlp.gate_proj").symmetric);
  EXPECT_EQ(config.module("layers.2.mlp.gate_proj").claim, Claim::kFloat);
  EXPECT_EQ(config.module("layers.3.mlp.gate_proj").claim, Claim::kForeign);
  // A plain name is no pattern: it does not match what it begins.
  EXPECT_EQ(config.module("layers.0.mlp.gate_proj2").claim, Claim::kSilent);
  EXPECT_EQ(config.module("layers.0.mlp.up_proj").claim, Claim::kSilent);
  EXPECT_TRUE(config.module("layers.0.mlp.up_proj").symmetric);
  // Outside the quantised blocks, but for the drafting layer.
  EXPECT_EQ(config.module("lm_head").claim, Claim::kFloat);
  EXPECT_EQ(config.module("mtp.fc").claim, Claim::kSilent);
}

// The official GPTQ files' list.
TEST(QuantConfig, FollowsDynamicRules) {
  const auto config = parse(gptq(R"(, "dynamic": {"lm_head": {},
      "model.language_model.embed_tokens": {}, "-:.*attn.*": {}, "-:.*shared_expert.*": {},
      "-:.*mtp.*": {}, "-:.*visual.*": {}})"))
                          .value();
  EXPECT_EQ(config.module("layers.0.linear_attn.out_proj").claim, Claim::kFloat);
  EXPECT_EQ(config.module("layers.0.mlp.shared_expert.up_proj").claim, Claim::kFloat);
  EXPECT_EQ(config.module("mtp.fc").claim, Claim::kFloat);
  EXPECT_EQ(config.module("layers.0.mlp.experts.3.up_proj").claim, Claim::kSilent);
  EXPECT_EQ(config.module("lm_head").claim, Claim::kSilent);
}

TEST(QuantConfig, CanonicalisesModulesToNotConvert) {
  const auto config = parse(R"({"quant_method": "fp8", "weight_block_size": [128, 128],
      "activation_scheme": "static",
      "modules_to_not_convert": ["lm_head", "model.language_model.layers.0.mlp.gate",
                                 "model.layers.1.linear_attn", "visual.blocks.0"]})")
                          .value();
  EXPECT_TRUE(config.static_activations());
  EXPECT_EQ(config.module("lm_head").claim, Claim::kFloat);
  EXPECT_EQ(config.module("layers.0.mlp.gate").claim, Claim::kFloat);
  EXPECT_EQ(config.module("layers.0.mlp.gate_proj").claim, Claim::kSilent);
  EXPECT_EQ(config.module("layers.1.linear_attn.out_proj").claim, Claim::kFloat);
  EXPECT_EQ(config.module("layers.1.self_attn.q_proj").claim, Claim::kSilent);
}

TEST(NamePattern, GivesUpOnPatternsThatBacktrackForEver) {
  const auto pattern = NamePattern::compile("(a+)+$").value();
  EXPECT_TRUE(pattern.found_in("aaa"));
  EXPECT_FALSE(pattern.found_in(std::string(60, 'a') + "b"));
  EXPECT_TRUE(NamePattern::compile("b").value().found_in("ab"));
  EXPECT_FALSE(NamePattern::compile("b").value().matches_start_of("ab"));
}

}  // namespace
}  // namespace pewter
