// Random weights are what their heads promise: sane values, repeated layers, and nothing that
// depends on the number of threads.
#include "model/qwen35/random_weights.h"

#include <gtest/gtest.h>

#include <cmath>

#include "model/qwen35/shapes.h"
#include "model/qwen35/testing/host_device.h"

namespace pewter {
namespace {

ModelConfig small_config() {
  ModelConfig config = shape_config("third").value();
  config.layers = 8;
  config.layer_kinds.resize(8);
  config.hidden_size = 256;
  config.vocab_size = 512;
  config.experts = 4;
  config.experts_per_token = 2;
  return config;
}

struct Moments {
  double mean = 0, deviation = 0;
};
Moments moments_of(const WeightMatrix& w) {
  std::vector<float> row(static_cast<size_t>(w.k));
  double sum = 0, squares = 0;
  const auto count = static_cast<double>(w.count * w.n * w.k);
  for (int64_t e = 0; e < w.count; ++e)
    for (int64_t r = 0; r < w.n; ++r) {
      decode_row(w, e, r, row.data());
      for (const float x : row) {
        EXPECT_TRUE(std::isfinite(x));
        sum += x;
        squares += static_cast<double>(x) * x;
      }
    }
  return {sum / count, std::sqrt(squares / count)};
}

class RandomWeights : public testing::TestWithParam<const char*> {};

TEST_P(RandomWeights, HaveUnitOutputs) {
  HostDevice device;
  const ModelConfig config = small_config();
  const ModelWeights weights =
      make_random_weights(device, config, shape_formats(GetParam()).value()).value();
  const auto expect_size = [](const WeightMatrix& w, double size) {
    const Moments moments = moments_of(w);
    EXPECT_NEAR(moments.mean / size, 0, 0.05);
    EXPECT_NEAR(moments.deviation / size, 1, 0.1);
  };
  expect_size(weights.embed, 1);
  expect_size(weights.head, 1 / 16.0);
  expect_size(weights.layers[0].delta->in_qkv, 1 / 16.0);
  expect_size(weights.layers[3].attention->q, 1 / 16.0);
  expect_size(weights.layers[0].moe->down, 1 / 16.0);
  expect_size(weights.layers[7].moe->gate, 1 / 16.0);
}
INSTANTIATE_TEST_SUITE_P(Formats, RandomWeights, testing::Values("bf16", "fp8", "int4", "hybrid"),
                         [](const auto& tested) { return std::string(tested.param); });

TEST(RandomWeightsOf, Int4HaveScalesOfBothSignsAndAllCodes) {
  HostDevice device;
  const ModelWeights weights =
      make_random_weights(device, small_config(), shape_formats("int4").value()).value();
  const WeightMatrix& w = weights.layers[0].moe->gate;
  int64_t negative = 0;
  for (int64_t i = 0; i < w.scales.elements(); ++i)
    negative += load_float(w.scales.data(), w.scales.dtype(), i) < 0;
  EXPECT_NEAR(static_cast<double>(negative) / static_cast<double>(w.scales.elements()), 0.5, 0.1);
  std::array<int64_t, 16> codes{};
  for (int64_t i = 0; i < w.values.bytes(); ++i)
    ++codes[std::to_integer<size_t>(w.values.data()[i] & std::byte{15})];
  for (const int64_t count : codes)
    EXPECT_NEAR(static_cast<double>(count), static_cast<double>(w.values.bytes()) / 16,
                static_cast<double>(w.values.bytes()) / 160);
}

TEST(RandomWeightsOf, TheSeedAlone) {
  HostDevice device;
  const FormatChoice format = shape_formats("bf16").value();
  const auto first_row = [&](int threads, uint64_t seed) {
    const ModelWeights weights =
        make_random_weights(device, small_config(), format, {.seed = seed, .threads = threads})
            .value();
    std::vector<float> row(256);
    decode_row(weights.layers[5].moe->up, 3, 7, row.data());
    return row;
  };
  EXPECT_EQ(first_row(1, 1), first_row(3, 1));
  EXPECT_NE(first_row(1, 1), first_row(1, 2));
}

TEST(RandomWeightsOf, RepeatedLayersShareMemoryWithTheirKind) {
  HostDevice device;
  const ModelConfig config = small_config();
  const FormatChoice format = shape_formats("bf16").value();
  const ModelWeights weights =
      make_random_weights(device, config, format, {.unique_layers = 4}).value();
  ASSERT_EQ(weights.layers.size(), 8u);
  for (size_t i = 4; i < 8; ++i) {
    const LayerWeights& layer = weights.layers[i];
    EXPECT_EQ(layer.delta.has_value(), config.layer_kinds[i] == LayerKind::kDelta);
    EXPECT_EQ(layer.moe->up.values.data(), weights.layers[i - 4].moe->up.values.data());
  }
  EXPECT_NE(weights.layers[0].moe->up.values.data(), weights.layers[1].moe->up.values.data());
  const RandomWeightBytes four = random_weight_bytes(device, config, format, {.unique_layers = 4});
  const RandomWeightBytes all = random_weight_bytes(device, config, format, {});
  EXPECT_EQ(2 * four.layers, all.layers);
  EXPECT_EQ(four.others, all.others);
}

// The drafting layer in a format of its own, but for what checkpoints leave alone.
TEST(RandomWeightsOf, TheDraftingLayerAndItsHead) {
  HostDevice device;
  const ModelConfig config = small_config();
  const FormatChoice format = shape_formats("bf16", {.mtp = "int4"}).value();
  const RandomWeightOptions options{.with_mtp = true, .draft_head_rows = 200};
  const ModelWeights weights = make_random_weights(device, config, format, options).value();
  ASSERT_TRUE(weights.mtp);
  EXPECT_EQ(weights.mtp->layer.moe->gate.format, WeightFormat::kInt4Group128);
  EXPECT_EQ(weights.mtp->layer.attention->q.format, WeightFormat::kInt4Group128);
  EXPECT_EQ(weights.mtp->fc.format, WeightFormat::kBF16);
  EXPECT_EQ(weights.mtp->layer.moe->router.format, WeightFormat::kBF16);
  EXPECT_EQ(weights.layers[0].moe->gate.format, WeightFormat::kBF16);
  EXPECT_EQ(weights.drafting_head().n, 200);
  EXPECT_EQ(weights.drafting_head().format, WeightFormat::kInt8Row);
  EXPECT_NEAR(moments_of(weights.drafting_head()).deviation, 1 / 16.0, 0.006);
  const ModelWeights plain = make_random_weights(device, config, format).value();
  EXPECT_FALSE(plain.mtp);
  EXPECT_EQ(plain.drafting_head().n, config.vocab_size);
  EXPECT_GT(random_weight_bytes(device, config, format, options).others,
            random_weight_bytes(device, config, format, {}).others);
  EXPECT_FALSE(shape_formats("bf16", {.mtp = "int8"}));
}

TEST(RandomWeightsOf, UniqueLayersNeedEveryKind) {
  HostDevice device;
  const auto weights = make_random_weights(device, small_config(), shape_formats("bf16").value(),
                                           {.unique_layers = 3});
  ASSERT_FALSE(weights);
  EXPECT_NE(weights.error().message.find("full attention"), std::string::npos);
}

}  // namespace
}  // namespace pewter
