// The numbers of the 122B shape, counted by hand from its dimensions.
#include "model/qwen35/footprint.h"

#include <gmock/gmock.h>

#include "model/qwen35/testing/synthetic_checkpoint.h"

namespace pewter {
namespace {

ModelConfig config_122b() {
  ModelConfig c;
  c.hidden_size = 3072;
  c.layers = 48;
  c.vocab_size = 248320;
  for (int i = 0; i < 48; ++i)
    c.layer_kinds.push_back(i % 4 == 3 ? LayerKind::kAttention : LayerKind::kDelta);
  c.query_heads = 32;
  c.kv_heads = 2;
  c.head_dim = 256;
  c.key_heads = 16;
  c.value_heads = 64;
  c.key_dim = c.value_dim = 128;
  c.experts = 256;
  c.experts_per_token = 8;
  c.expert_width = c.shared_width = 1024;
  c.mtp_layers = 1;
  return c;
}

// The hybrid: int4 but for the shared experts (FP8), the router, the gates and the head.
WeightSpec hybrid(const MatrixParameter& p) {
  switch (p.component) {
    case Component::kRoutedExperts:
    case Component::kDelta:
    case Component::kDeltaGates:
    case Component::kAttention:
      return {.format = WeightFormat::kInt4Group128, .scale_dtype = DType::kF16};
    case Component::kSharedExperts:
      return {.format = WeightFormat::kFp8Block128, .scale_dtype = DType::kBF16};
    default:
      return {.format = WeightFormat::kBF16};
  }
}

const ComponentBytes& component(const Footprint& f, std::string_view name) {
  for (const ComponentBytes& row : f.components)
    if (row.name == name) return row;
  CHECK(false, "no component ", name);
}

TEST(Footprint, CountsTheHybrid122B) {
  const Footprint f = footprint(config_122b(), /*with_mtp=*/true, hybrid);
  const auto token = [&](const char* name) { return component(f, name).token_bytes; };
  EXPECT_EQ(token("embedding"), 6144);
  EXPECT_EQ(token("routed_experts"),
            int64_t{3'623'878'656} * 33 / 64);               // 1 868.6 MB: 0.515625 B each
  EXPECT_EQ(token("shared_experts"), 452'984'832 + 55'296);  // 453.0 MB
  EXPECT_EQ(token("router"), 75'497'472);
  EXPECT_EQ(token("shared_gate"), 294'912);
  EXPECT_EQ(token("delta"), int64_t{3'170'893'824} * 33 / 64);
  EXPECT_EQ(token("delta_gates"), int64_t{14'155'776} * 33 / 64);
  EXPECT_EQ(token("attention"), int64_t{943'718'400} * 33 / 64);
  EXPECT_EQ(token("lm_head"), 1'525'678'080);
  EXPECT_NEAR(static_cast<double>(f.total.token_bytes), 6.06e9, 0.02e9);
  // 96 layer norms and the last, 24 head norms, 36 × (convolution, A_log, dt_bias, gated norm).
  EXPECT_EQ(component(f, "small").parameters,
            97 * 3072 + 24 * 256 + 36 * (4 * 12288 + 2 * 64 + 128));
  EXPECT_EQ(f.total.parameters, 122'111'526'912);  // "122.11 B"
  EXPECT_EQ(component(f, "mtp").disk_bytes, 5'047'358'464);
}

TEST(Footprint, CountsThe122BsState) {
  const Footprint f = footprint(config_122b(), false, hybrid);
  EXPECT_EQ(f.recurrent_bytes, 150'994'944);
  EXPECT_EQ(f.convolution_bytes, 2'654'208);
  EXPECT_EQ(f.kv_token_bytes, 24'576);
  EXPECT_EQ(f.mtp_kv_token_bytes, 2'048);
  const Footprint wide =
      footprint(config_122b(), false, hybrid, {.activations = DType::kF32, .kv = DType::kF32});
  EXPECT_EQ(wide.recurrent_bytes, 150'994'944);
  EXPECT_EQ(wide.convolution_bytes, int64_t{2} * 2'654'208);
  EXPECT_EQ(wide.kv_token_bytes, 2 * 24'576);
}

// All of it in BF16 is the 18 GB a token of the plain model reads.
TEST(Footprint, CountsThePlain122B) {
  const Footprint f = footprint(config_122b(), false, [](const MatrixParameter&) {
    return WeightSpec{.format = WeightFormat::kBF16};
  });
  EXPECT_EQ(component(f, "routed_experts").token_bytes, 7'247'757'312);
  EXPECT_NEAR(static_cast<double>(f.total.token_bytes), 18.02e9, 0.01e9);
  EXPECT_EQ(component(f, "routed_experts").formats, "bf16");
}

TEST(Footprint, ReadsATiedHeadOnceStored) {
  ModelConfig c = config_122b();
  c.tied_embeddings = true;
  const Footprint f = footprint(c, false, hybrid);
  EXPECT_EQ(component(f, "lm_head").token_bytes, 1'525'678'080);
  EXPECT_EQ(component(f, "lm_head").stored_bytes, 0);
  EXPECT_EQ(component(f, "embedding").stored_bytes, 1'525'678'080);
}

TEST(Footprint, CountsAnInt8HeadBesideATiedEmbedding) {
  ModelConfig c = config_122b();
  c.tied_embeddings = true;
  const Footprint f = footprint(c, false, [](const MatrixParameter& p) {
    return p.component == Component::kHead ? WeightSpec{.format = WeightFormat::kInt8Row}
                                           : hybrid(p);
  });
  const ComponentBytes& head = component(f, "lm_head");
  EXPECT_EQ(head.stored_bytes, 248'320 * (3072 + 4));
  EXPECT_EQ(head.token_bytes, head.stored_bytes);
  EXPECT_EQ(head.parameters, 0);
  EXPECT_EQ(head.disk_bytes, 0);
  EXPECT_EQ(component(f, "embedding").stored_bytes, 1'525'678'080);
}

TEST(Footprint, CountsWhatAPlanWillRead) {
  SyntheticCheckpoint synthetic;
  synthetic.set_quantization(auto_round_config());
  for (const std::string& module : synthetic.quantisable_modules()) synthetic.pack_int4(module);
  const TempDirectory directory;
  synthetic.write(directory);
  const auto checkpoint = Checkpoint::open(directory.path()).value();
  const auto config = ModelConfig::parse(checkpoint.config()).value();
  ModelWeights weights;
  Findings findings;
  const auto plan = plan_load(checkpoint, config, MtpUse::kWhenPresent, weights, findings).value();
  const Footprint f = footprint(config, plan);
  EXPECT_EQ(f.total.disk_bytes + component(f, "mtp").disk_bytes, plan.file_bytes());
  int64_t bytes = 0;
  for (const auto& [name, tensor] : synthetic.tensors)
    bytes += static_cast<int64_t>(tensor.bytes.size());
  EXPECT_EQ(plan.file_bytes(), bytes);
  EXPECT_EQ(component(f, "routed_experts").formats, "int4_group128");
  EXPECT_EQ(component(f, "delta").formats, "int4_group128");
  ModelWeights others;
  const auto int8 =
      plan_load(checkpoint, config, MtpUse::kWhenPresent, others, findings, LmHead::kInt8).value();
  EXPECT_EQ(component(footprint(config, int8), "lm_head").formats, "int8_row");
  EXPECT_EQ(int8.file_bytes(), plan.file_bytes());
}

}  // namespace
}  // namespace pewter
