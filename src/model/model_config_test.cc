#include "model/model_config.h"

#include <gmock/gmock.h>

#include <algorithm>

#include "base/file.h"

namespace pewter {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

// The 122B's config, as far as it concerns the text model.
constexpr const char* kConfig = R"({
  "architectures": ["Qwen3_5MoeForConditionalGeneration"], "model_type": "qwen3_5_moe",
  "tie_word_embeddings": false, "image_token_id": 248056, "video_token_id": 248057,
  "vision_start_token_id": 248053, "vision_end_token_id": 248054,
  "text_config": {
    "model_type": "qwen3_5_moe_text", "hidden_size": 3072, "num_hidden_layers": 4,
    "num_attention_heads": 32, "num_key_value_heads": 2, "head_dim": 256, "hidden_act": "silu",
    "layer_types": ["linear_attention", "linear_attention", "linear_attention", "full_attention"],
    "linear_num_key_heads": 16, "linear_num_value_heads": 64, "linear_key_head_dim": 128,
    "linear_value_head_dim": 128, "linear_conv_kernel_dim": 4, "attn_output_gate": true,
    "num_experts": 256, "num_experts_per_tok": 8, "moe_intermediate_size": 1024,
    "shared_expert_intermediate_size": 1024, "mlp_only_layers": [], "rms_norm_eps": 1e-06,
    "rope_parameters": {"rope_type": "default", "rope_theta": 10000000,
      "partial_rotary_factor": 0.25, "mrope_interleaved": true, "mrope_section": [11, 11, 10]},
    "mtp_num_hidden_layers": 1, "mtp_use_dedicated_embeddings": false, "vocab_size": 248320,
    "max_position_embeddings": 262144, "eos_token_id": 248044, "attention_bias": false}})";

// The config with one key of text_config replaced; "null" removes it.
Json with(const std::string& key, const std::string& value) {
  Json config = Json::parse(kConfig).value();
  Json text = *config.find("text_config");
  text.set(key, Json::parse(value).value());
  config.set("text_config", text);
  return config;
}

TEST(ModelConfig, ReadsTheFields) {
  const ModelConfig c = ModelConfig::parse(Json::parse(kConfig).value()).value();
  EXPECT_TRUE(c.is_moe());
  EXPECT_EQ(c.hidden_size, 3072);
  EXPECT_EQ(c.delta_channels(), 12288);
  EXPECT_EQ(c.delta_in_width(), 20608);
  EXPECT_EQ(c.rotary_dim, 64);
  EXPECT_EQ(c.rope_theta, 1e7);
  EXPECT_EQ(c.norm_epsilon, 1e-6f);
  EXPECT_EQ(c.count(LayerKind::kAttention), 1);
  EXPECT_EQ(c.mtp_layers, 1);
  EXPECT_THAT(c.eos_token_ids, ElementsAre(248044));
  EXPECT_EQ(c.image_token_id, 248056);
  EXPECT_EQ(c.vision_end_token_id, 248054);
  EXPECT_FALSE(c.tied_embeddings);
}

TEST(ModelConfig, DealsOutInterleavedPositionAxes) {
  const ModelConfig c = ModelConfig::parse(Json::parse(kConfig).value()).value();
  ASSERT_EQ(c.rope_axis.size(), 32u);
  for (int i = 0; i < 32; ++i)
    EXPECT_EQ(c.rope_axis[static_cast<size_t>(i)], i % 3 == 1 && i < 33   ? 1
                                                   : i % 3 == 2 && i < 30 ? 2
                                                                          : 0)
        << i;
  EXPECT_EQ(std::ranges::count(c.rope_axis, 0), 11);
  EXPECT_EQ(std::ranges::count(c.rope_axis, 1), 11);
  EXPECT_EQ(std::ranges::count(c.rope_axis, 2), 10);
}

// Where h and w run out before the frequencies do, the rest is t.
TEST(ModelConfig, StopsDealingWhenASectionIsFull) {
  Json config = with("head_dim", "64");
  Json text = *config.find("text_config");
  text.set("rope_parameters", Json::parse(R"({"rope_theta": 1e7, "mrope_interleaved": true,
                                              "mrope_section": [4, 2, 2]})")
                                  .value());
  config.set("text_config", text);
  EXPECT_THAT(ModelConfig::parse(config).value().rope_axis, ElementsAre(0, 1, 2, 0, 1, 2, 0, 0));
}

TEST(ModelConfig, TakesPlainSectionsAndNone) {
  const auto axes = [](const char* rope) {
    return ModelConfig::parse(with("rope_parameters", rope)).value().rope_axis;
  };
  const auto plain = axes(R"({"rope_theta": 1e7, "mrope_section": [11, 11, 10]})");
  EXPECT_EQ(plain[10], 0);
  EXPECT_EQ(plain[11], 1);
  EXPECT_EQ(plain[21], 1);
  EXPECT_EQ(plain[22], 2);
  EXPECT_THAT(axes(R"({"rope_theta": 1e7})"), testing::Each(0));
}

TEST(ModelConfig, TakesOlderPlacesOfKeys) {
  Json config = with("rope_parameters", "null");
  Json text = *config.find("text_config");
  text.set("rope_theta", 5000.0);
  text.set("rope_scaling", Json::parse(R"({"type": "mrope", "mrope_section": [4, 2, 2]})").value());
  text.set("partial_rotary_factor", 0.0625);
  text.set("layer_types", nullptr);
  text.set("full_attention_interval", 4);
  text.set("eos_token_id", Json::parse("[5, 6]").value());
  text.set("tie_word_embeddings", true);
  config.set("tie_word_embeddings", nullptr);
  config.set("text_config", text);
  const ModelConfig c = ModelConfig::parse(config).value();
  EXPECT_EQ(c.rope_theta, 5000);
  EXPECT_EQ(c.rotary_dim, 16);
  EXPECT_EQ(c.layer_kinds[2], LayerKind::kDelta);
  EXPECT_EQ(c.layer_kinds[3], LayerKind::kAttention);
  EXPECT_THAT(c.eos_token_ids, ElementsAre(5, 6));
  EXPECT_TRUE(c.tied_embeddings);
}

TEST(ModelConfig, TakesFlatTextOnlyConfigs) {
  Json config = *Json::parse(kConfig).value().find("text_config");
  EXPECT_EQ(ModelConfig::parse(config).value().hidden_size, 3072);
}

TEST(ModelConfig, RefusesWhatItCannotRun) {
  const std::tuple<const char*, const char*, const char*> cases[] = {
      {"hidden_size", "null", "hidden_size is missing"},
      {"hidden_size", "0", "hidden_size is 0"},
      {"hidden_size", "3072.5", "hidden_size is 3072.5"},
      {"hidden_size", "99999999999999999999", "hidden_size is 9999"},
      {"layer_types", "[\"full_attention\"]", "layer_types is no list of num_hidden_layers (4)"},
      {"layer_types", R"(["linear_attention", "x", "linear_attention", "full_attention"])",
       "layer_types has \"x\""},
      {"linear_num_value_heads", "40", "linear_num_value_heads is 40, no multiple"},
      {"num_key_value_heads", "3", "num_attention_heads is 32, no multiple"},
      {"num_experts_per_tok", "300", "num_experts_per_tok is 300 of 256 experts"},
      {"num_experts", "null", "num_experts is missing"},
      {"mlp_only_layers", "[1]", "mlp_only_layers is not empty"},
      {"norm_topk_prob", "false", "norm_topk_prob is false"},
      {"hidden_act", "\"gelu\"", "hidden_act \"gelu\" is not supported"},
      {"output_gate_type", "\"sigmoid\"", "output_gate_type \"sigmoid\" is not supported"},
      {"attn_output_gate", "false", "attn_output_gate is false"},
      {"attention_bias", "true", "attention_bias is true"},
      {"linear_conv_kernel_dim", "3", "linear_conv_kernel_dim is 3"},
      {"mtp_num_hidden_layers", "2", "mtp_num_hidden_layers is 2"},
      {"mtp_use_dedicated_embeddings", "true", "mtp_use_dedicated_embeddings is true"},
      {"eos_token_id", "248320", "eos_token_id is 248320, no token of 248320"},
      {"rms_norm_eps", "-1", "rms_norm_eps is -1"},
      {"rope_parameters", R"({"rope_type": "yarn", "rope_theta": 1e7})", "rope_type \"yarn\""},
      {"rope_parameters", "{}", "rope_theta is missing"},
      {"rope_parameters", R"({"rope_theta": 1e7, "mrope_section": [11, 11, 11]})",
       "mrope_section is [11,11,11], want three sizes that add to 32"},
      {"rope_parameters", R"({"rope_theta": 1e7, "partial_rotary_factor": 0.012})",
       "partial_rotary_factor makes 3 of head_dim 256 rotate, want an even number"},
      {"rope_parameters", R"({"rope_theta": 1e7, "partial_rotary_factor": 1.5})",
       "partial_rotary_factor is above 1"}};
  for (const auto& [key, value, message] : cases) {
    const auto config = ModelConfig::parse(with(key, value));
    ASSERT_FALSE(config) << key << " " << value;
    EXPECT_THAT(config.error().message, HasSubstr(message));
    EXPECT_THAT(config.error().message, HasSubstr("config.json: "));
  }
  Json other = Json::parse(kConfig).value();
  other.set("model_type", "llama");
  EXPECT_THAT(ModelConfig::parse(other).error().message,
              HasSubstr("model_type \"llama\" is not supported"));
  EXPECT_FALSE(ModelConfig::parse(Json(3)));
}

TEST(ModelConfig, ReadsTheBundledModels) {
  const std::string path = std::string(PEWTER_SOURCE_DIR) + "/models/demo/config.json";
  const ModelConfig c = ModelConfig::parse(Json::parse(read_file(path).value()).value()).value();
  EXPECT_EQ(c.experts, 16);
  EXPECT_EQ(c.layers, 8);
}

}  // namespace
}  // namespace pewter
