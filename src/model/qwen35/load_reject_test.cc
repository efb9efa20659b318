// Whatever is wrong with a checkpoint stops the load, and the message names file, tensor and
// reason.
#include <gmock/gmock.h>

#include "model/qwen35/testing/reject_rule.h"

namespace pewter {
namespace {

using testing::HasSubstr;

constexpr const char* kFile = "model.safetensors: model.language_model.";

TEST_P(RejectRules, StopTheLoadAndSayWhy) {
  SyntheticCheckpoint synthetic;
  GetParam().spoil(synthetic);
  EXPECT_THAT(load_error(synthetic), HasSubstr(GetParam().message));
}

INSTANTIATE_TEST_SUITE_P(
    Structure, RejectRules,
    testing::Values(
        RejectRule{"missing_linear",
                   [](auto& s) { s.erase("layers.0.linear_attn.out_proj.weight"); },
                   "layers.0.linear_attn.out_proj: is missing"},
        RejectRule{"missing_vector", [](auto& s) { s.erase("layers.0.linear_attn.A_log"); },
                   "layers.0.linear_attn.A_log: is missing"},
        RejectRule{"missing_expert",
                   [](auto& s) { s.erase("layers.1.mlp.experts.3.up_proj.weight"); },
                   "layers.1.mlp.experts.3.up_proj: is missing"},
        RejectRule{"missing_head", [](auto& s) { s.erase("lm_head.weight"); },
                   "lm_head: is missing"},
        RejectRule{"partial_mtp", [](auto& s) { s.erase("mtp.fc.weight"); }, "mtp.fc: is missing"},
        RejectRule{"head_of_tied_model", [](auto& s) { s.config.set("tie_word_embeddings", true); },
                   "model.safetensors: lm_head.weight: is stored, but tie_word_embeddings is true"},
        RejectRule{"leftover", [](auto& s) { s.add("layers.0.mlp.extra.weight", "BF16", {1}); },
                   std::string(kFile) + "layers.0.mlp.extra.weight: belongs to no parameter"},
        RejectRule{"bias", [](auto& s) { s.add("layers.1.self_attn.k_proj.bias", "BF16", {64}); },
                   "k_proj.bias: belongs to no parameter"},
        RejectRule{"shape",
                   [](auto& s) { s.tensor("layers.1.self_attn.k_proj.weight").shape = {128, 64}; },
                   "k_proj.weight: has shape [128, 64], want [64, 128]"},
        RejectRule{"vector_shape",
                   [](auto& s) { s.tensor("layers.0.input_layernorm.weight").shape = {1, 128}; },
                   "input_layernorm.weight: has shape [1, 128], want [128]"},
        RejectRule{"vector_type", [](auto& s) { s.add("layers.0.linear_attn.A_log", "I32", {2}); },
                   "A_log: is I32 [2], want BF16, F16 or F32"},
        RejectRule{"unknown_type_needed", [](auto& s) { s.add("norm.weight", "F4", {128}); },
                   "norm.weight: is F4 [128], want BF16, F16 or F32"},
        RejectRule{"linear_type",
                   [](auto& s) { s.add("layers.1.self_attn.k_proj.weight", "I8", {64, 128}); },
                   "k_proj.weight: is I8, want BF16, F16, F32 or F8_E4M3"},
        RejectRule{"both_expert_layouts",
                   [](auto& s) { s.add("layers.0.mlp.experts.down_proj", "BF16", {4, 128, 128}); },
                   "experts.0.down_proj.weight: experts are stored twice: fused and one by one"},
        RejectRule{"fused_count",
                   [](auto& s) {
                     s.fuse_experts();
                     s.add("layers.0.mlp.experts.down_proj", "BF16", {3, 128, 128});
                   },
                   "experts.down_proj: has shape [3, 128, 128], want [4, 128, 128]"},
        RejectRule{"fused_transposed",
                   [](auto& s) {
                     s.fuse_experts();
                     s.tensor("layers.0.mlp.experts.gate_up_proj").shape = {4, 128, 256};
                   },
                   "want [4, 256, 128]: transposed experts are not supported"},
        RejectRule{"fused_half",
                   [](auto& s) {
                     s.fuse_experts();
                     s.erase("layers.0.mlp.experts.gate_up_proj");
                   },
                   "layers.0.mlp.experts.gate_up_proj: is missing"}),
    kRejectRuleName);

TEST(LoadRejects, ListEveryFaultOfTheDataAtTheEnd) {
  SyntheticCheckpoint s;
  make_fp8(s);
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
  make_int4(s);
  poke(s.tensor(int4_part("scales")), 2 * 9, {0, 0});
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
