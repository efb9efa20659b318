// What a drafter's directory may say, and what is said about one that cannot be used.
#include <gmock/gmock.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "backend/factory.h"
#include "base/file.h"
#include "model/dflash/model.h"

namespace pewter {
namespace {

namespace fs = std::filesystem;
using testing::ElementsAre;
using testing::HasSubstr;

const std::string kFixture = std::string(PEWTER_SOURCE_DIR) + "/tests/golden/data/nano-dflash";

Json fixture_config() { return Json::parse(read_file(kFixture + "/config.json").value()).value(); }
// The fixture's config with a key of it, or of dflash_config, set.
Json with(Json config, const char* key, Json value) {
  config.set(key, std::move(value));
  return config;
}
Json with(const char* key, Json value) { return with(fixture_config(), key, std::move(value)); }
Json nested(const char* key, Json value) {
  Json config = fixture_config();
  Json inner = *config.find("dflash_config");
  inner.set(key, std::move(value));
  config.set("dflash_config", inner);
  return config;
}

TEST(DflashConfig, ReadsWhatIsPublished) {
  const DflashConfig config = DflashConfig::parse(fixture_config()).value();
  EXPECT_EQ(config.hidden_size, 64);
  EXPECT_EQ(config.block_size, 8);
  EXPECT_EQ(config.most_drafts(), 7);
  EXPECT_EQ(config.mask_token_id, 319);
  EXPECT_THAT(config.taps, ElementsAre(0, 1, 2));
  EXPECT_EQ(config.layer_kinds[0].window, 0);
  EXPECT_FALSE(config.layer_kinds[0].causal);
  EXPECT_EQ(DflashConfig::parse(nested("block_size", 16))->block_size, 16);
  Json rope = with("rope_theta", nullptr);
  rope.set("rope_parameters", Json::parse(R"({"rope_type":"default","rope_theta":5e5})").value());
  EXPECT_EQ(DflashConfig::parse(rope)->rope_theta, 5e5);
}

// Sliding layers are causal in the block and full ones are not, unless the config says it of all.
TEST(DflashConfig, WindowsAndCausality) {
  Json sliding = with("layer_types", Json::Array{"sliding_attention", "full_attention"});
  sliding.set("sliding_window", 16);
  const auto kinds = [](const Json& json) { return DflashConfig::parse(json)->layer_kinds; };
  EXPECT_EQ(kinds(sliding)[0].window, 16);
  EXPECT_TRUE(kinds(sliding)[0].causal);
  EXPECT_FALSE(kinds(sliding)[1].causal);
  EXPECT_TRUE(kinds(with(sliding, "is_causal", true))[1].causal);
  EXPECT_EQ(kinds(with(sliding, "use_sliding_window", false))[0].window, 0);
  EXPECT_FALSE(kinds(with(sliding, "is_causal", false))[0].causal);
  EXPECT_EQ(kinds(with(sliding, "is_causal", false))[0].window, 16);
  EXPECT_TRUE(kinds(nested("causal", true))[0].causal);
}

TEST(DflashConfig, ErrorsNameTheKey) {
  const auto refused = [](const Json& config, const char* why,
                          ErrorCode code = ErrorCode::kCorruptData) {
    const auto parsed = DflashConfig::parse(config);
    ASSERT_FALSE(parsed) << why;
    EXPECT_THAT(parsed.error().message, HasSubstr(why));
    EXPECT_EQ(parsed.error().code, code);
  };
  constexpr auto kUnsupported = ErrorCode::kUnsupported;
  refused(with("architectures", Json::Array{"DFlash2DraftModel"}),
          "architectures is DFlash2DraftModel: a drafter is a DFlashDraftModel", kUnsupported);
  refused(with("architectures", 3), "architectures is missing");
  refused(with("hidden_size", 0), "hidden_size");
  refused(with("num_attention_heads", 3), "num_attention_heads is 3, no multiple of 2");
  refused(with("block_size", 17), "block_size is 17", kUnsupported);
  refused(with("block_size", "8"), "block_size");
  refused(nested("mask_token_id", nullptr), "mask_token_id is missing");
  refused(nested("target_layer_ids", Json::Array{}), "target_layer_ids is missing");
  refused(nested("target_layer_ids", Json::Array{-1}), "target_layer_ids holds -1");
  refused(nested("output_multiplier", 2), "output_multiplier is not 1", kUnsupported);
  refused(nested("final_logit_softcapping", 30), "final_logit_softcapping", kUnsupported);
  refused(nested("new_trick", 1), "dflash_config.new_trick is no key that is known", kUnsupported);
  refused(with("layer_types", Json::Array{"full_attention"}), "layer_types is no list of 2");
  refused(with("layer_types", Json::Array{"full_attention", "linear_attention"}),
          "layer_types holds \"linear_attention\"", kUnsupported);
  Json sliding = with("layer_types", Json::Array{"sliding_attention", "full_attention"});
  refused(sliding, "window is missing");
  refused(nested("attention_sink_bias", true), "attention_sink_bias is true", kUnsupported);
  refused(with("rope_scaling", Json::parse(R"({"rope_type":"yarn"})").value()), "yarn",
          kUnsupported);
  refused(with("draft_vocab_size", 100), "draft_vocab_size", kUnsupported);
}

TEST(DflashConfig, BelongsToOneTarget) {
  const DflashConfig config = DflashConfig::parse(fixture_config()).value();
  ModelConfig target;
  target.hidden_size = 64;
  target.vocab_size = 320;
  target.layers = 4;
  EXPECT_TRUE(config.check_target(target));
  const auto refused = [&](const DflashConfig& drafter, const ModelConfig& model, const char* why) {
    const Status status = drafter.check_target(model);
    ASSERT_FALSE(status) << why;
    EXPECT_THAT(status.error().message, HasSubstr(why));
  };
  ModelConfig other = target;
  other.hidden_size = 128;
  refused(config, other, "its hidden_size is 64, the model's 128");
  other = target;
  other.vocab_size = 300;
  refused(config, other, "its vocab_size is 320, the model's 300");
  other = target;
  other.layers = 5;
  refused(config, other, "its num_target_layers is 4, the model's 5");
  DflashConfig deep = config;
  deep.taps.push_back(4);
  refused(deep, target, "reads layer 4 (dflash_config.target_layer_ids), and the model has 4");
  deep = config;
  deep.mask_token_id = 320;
  refused(deep, target, "mask_token_id is 320");
}

// A directory with the fixture's weights and this config.
class DflashLoad : public testing::Test {
 protected:
  void SetUp() override {
    fs::create_directories(directory_);
    fs::copy_file(kFixture + "/model.safetensors", directory_ / "model.safetensors",
                  fs::copy_options::overwrite_existing);
  }
  void TearDown() override { fs::remove_all(directory_); }
  std::string error_of(const Json& config) const {
    std::ofstream(directory_ / "config.json") << config.dump();
    const auto loaded = DflashModel::load(directory_, *backend_.device);
    return loaded ? "" : loaded.error().message;
  }
  fs::path directory_ = fs::path(testing::TempDir()) / str_cat("dflash-load-", getpid());
  Backend backend_ = make_backend({.device = "cpu-reference"}).value();
};

TEST_F(DflashLoad, TakesTheBytesItPlans) {
  EXPECT_EQ(error_of(fixture_config()), "");
  const auto model = DflashModel::load(directory_, *backend_.device).value();
  EXPECT_EQ(model->layers.size(), 2u);
  EXPECT_EQ(model->fc.size(), 3u);
  EXPECT_EQ(model->bytes, DflashModel::stored_bytes(model->config, *backend_.device, {}));
  EXPECT_EQ(model->bytes, plan_dflash(directory_, *backend_.device)->stored_bytes);
}

TEST_F(DflashLoad, TensorsMustBeThoseOfTheConfig) {
  EXPECT_THAT(error_of(with(with("num_hidden_layers", 1), "layer_types", nullptr)),
              HasSubstr("layers.1.input_layernorm.weight: belongs to no parameter of a DFlash"));
  EXPECT_THAT(error_of(with(with("num_hidden_layers", 3), "layer_types", nullptr)),
              HasSubstr("layers.2.self_attn.q_proj"));
  EXPECT_THAT(error_of(nested("target_layer_ids", Json::Array{0, 1})), HasSubstr("fc.weight"));
  EXPECT_THAT(error_of(with("intermediate_size", 80)), HasSubstr("layers.0.mlp.gate_proj"));
}

}  // namespace
}  // namespace pewter
