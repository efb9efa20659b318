// The demo model in its packings: real files of other programs' layouts, against one another.
#include <gmock/gmock.h>

#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <map>

#include "model/qwen35/load.h"
#include "model/qwen35/testing/host_device.h"

namespace pewter {
namespace {

using Modules = std::map<std::string, WeightMatrix>;

struct Demo {
  ModelConfig config;
  LoadedWeights loaded;
  Modules modules;
};

Demo load_demo(const std::string& path) {
  HostDevice device;
  const auto checkpoint = Checkpoint::open(path);
  CHECK(checkpoint.has_value(), checkpoint.error().message);
  Demo demo{.config = ModelConfig::parse(checkpoint->config()).value()};
  auto loaded = load_weights(*checkpoint, demo.config, device);
  CHECK(loaded.has_value(), loaded.error().message);
  demo.loaded = std::move(loaded).value();
  ModelWeights& weights = demo.loaded.weights;
  for (const MatrixParameter& p :
       list_parameters(demo.config, weights.mtp.has_value(), weights).matrices)
    for (int64_t i = 0; i < p.count; ++i)
      demo.modules[p.is_experts() ? str_cat(p.module, ".", i, ".", p.projection) : p.module] =
          p.target->at(i);
  return demo;
}

// Models that are not in the repository: PEWTER_SHARED, or a directory beside it.
std::string shared_path(const std::string& name) {
  const char* shared = std::getenv("PEWTER_SHARED");
  return (shared != nullptr ? std::string(shared) : PEWTER_SOURCE_DIR "/../shared") + "/" + name;
}

// ‖a − b‖ / ‖b‖
double relative_difference(const WeightMatrix& a, const WeightMatrix& b) {
  std::vector<float> x(static_cast<size_t>(a.k)), y(x.size());
  double difference = 0, norm = 0;
  for (int64_t row = 0; row < a.n; ++row) {
    decode_row(a, 0, row, x.data());
    decode_row(b, 0, row, y.data());
    for (size_t i = 0; i < x.size(); ++i) {
      const double d = static_cast<double>(x[i]) - static_cast<double>(y[i]);
      difference += d * d;
      norm += static_cast<double>(y[i]) * static_cast<double>(y[i]);
    }
  }
  return std::sqrt(difference / norm);
}

TEST(LoadDemo, ReadsTheBundledHybrid) {
  const Demo demo = load_demo(PEWTER_SOURCE_DIR "/models/demo");
  EXPECT_THAT(demo.loaded.report.warnings, testing::ElementsAre());
  EXPECT_TRUE(demo.loaded.weights.mtp.has_value());
  const auto format = [&](const char* module) { return demo.modules.at(module).format; };
  EXPECT_EQ(format("layers.0.mlp.experts.15.down_proj"), WeightFormat::kInt4Group128);
  EXPECT_EQ(format("layers.0.mlp.shared_expert.up_proj"), WeightFormat::kFp8Block128);
  EXPECT_EQ(format("layers.0.mlp.gate"), WeightFormat::kBF16);
  EXPECT_EQ(format("mtp.layers.0.mlp.experts.3.up_proj"), WeightFormat::kBF16);
}

class Packings : public testing::TestWithParam<const char*> {};

// A step of 1/16 of a group's largest weight makes an error near 10 % of its root mean square;
// three mantissa bits make 2.6 %. Plain weights are the same numbers.
TEST_P(Packings, AreCloseToThePlainWeights) {
  const std::string plain_path = shared_path("models/demo-bf16");
  const std::string path = shared_path(str_cat("models/", GetParam()));
  if (!std::filesystem::exists(plain_path) || !std::filesystem::exists(path))
    GTEST_SKIP() << path << " is not here";
  const Demo plain = load_demo(plain_path), packed = load_demo(path);
  ASSERT_EQ(plain.modules.size(), packed.modules.size());
  for (const auto& [name, w] : packed.modules) {
    const double bound = w.format == WeightFormat::kInt4Group128  ? 0.14
                         : w.format == WeightFormat::kFp8Block128 ? 0.03
                                                                  : 0.0;
    EXPECT_LE(relative_difference(w, plain.modules.at(name)), bound)
        << name << " " << weight_format_name(w.format);
  }
}
INSTANTIATE_TEST_SUITE_P(All, Packings,
                         testing::Values("demo-fp8", "demo-int4-autoround", "demo-hybrid"),
                         [](const auto& tested) {
                           std::string name = tested.param;
                           std::ranges::replace(name, '-', '_');
                           return name;
                         });

TEST(LoadDemo, RefusesTheNvfp4PackingByName) {
  const std::string path = shared_path("models/demo-nvfp4");
  if (!std::filesystem::exists(path)) GTEST_SKIP() << path << " is not here";
  const auto checkpoint = Checkpoint::open(path).value();
  const auto config = ModelConfig::parse(checkpoint.config()).value();
  HostDevice device;
  const auto loaded = load_weights(checkpoint, config, device);
  ASSERT_FALSE(loaded);
  EXPECT_EQ(loaded.error().code, ErrorCode::kUnsupported);
  EXPECT_THAT(loaded.error().message, testing::HasSubstr("nvfp4-pack-quantized"));
}

// Odd sizes, a tied head, and a file of other tensors beside the model's.
TEST(LoadDemo, ReadsTheNanoModels) {
  for (const char* name : {"goldens/nano-moe", "goldens/nano-dense"}) {
    const std::string path = shared_path(name);
    if (!std::filesystem::exists(path)) GTEST_SKIP() << path << " is not here";
    const Demo demo = load_demo(path);
    EXPECT_EQ(demo.loaded.weights.head.n, 320);
    EXPECT_EQ(demo.config.rotary_dim, 8);
  }
}

// A copy of the bundled model with its second shard cut short.
TEST(LoadDemo, RefusesATruncatedShard) {
  namespace fs = std::filesystem;
  const fs::path copy = fs::path(testing::TempDir()) / str_cat("pewter-cut-", ::getpid());
  fs::copy(PEWTER_SOURCE_DIR "/models/demo", copy);
  const fs::path shard = copy / "model-00002-of-00002.safetensors";
  fs::permissions(shard, fs::perms::owner_write, fs::perm_options::add);
  fs::resize_file(shard, fs::file_size(shard) - 1000);
  const auto checkpoint = Checkpoint::open(copy.string());
  fs::remove_all(copy);
  ASSERT_FALSE(checkpoint);
  EXPECT_EQ(checkpoint.error().code, ErrorCode::kCorruptData);
  EXPECT_THAT(checkpoint.error().message,
              testing::HasSubstr("model-00002-of-00002.safetensors: model.language_model."));
  EXPECT_THAT(checkpoint.error().message, testing::HasSubstr("truncated file?"));
}

}  // namespace
}  // namespace pewter
