// The products that `pewter bench kernels` measures are those of the model.

#include <gtest/gtest.h>

#include <map>

#include "cli/product_timer.h"
#include "model/qwen35/parameters.h"
#include "model/qwen35/shapes.h"

namespace pewter {
namespace {

TEST(ProductShapes, AddUpToTheModelsMatrices) {
  for (const char* const name : {"third", "qwen3.5-27b", "qwen3.5-35b", "qwen3.5-122b"}) {
    const ModelConfig config = shape_config(name).value();
    int64_t want = 0;
    ModelWeights shape;
    for (const MatrixParameter& p : list_parameters(config, false, shape).matrices)
      for (const Component component :
           {Component::kDelta, Component::kAttention, Component::kMlp, Component::kHead})
        if (p.component == component) want += p.n * p.k;
    const std::map<std::string_view, int64_t> layers = {
        {"delta_in", config.count(LayerKind::kDelta)},
        {"delta_out", config.count(LayerKind::kDelta)},
        {"attention_in", config.count(LayerKind::kAttention)},
        {"attention_out", config.count(LayerKind::kAttention)},
        {"mlp_up", config.layers},
        {"mlp_down", config.layers},
        {"head", 1}};
    int64_t have = 0;
    for (const ProductShape& product : product_shapes(config))
      have += layers.at(product.name) * product.n * product.k;
    EXPECT_EQ(have, want) << name;
  }
}

}  // namespace
}  // namespace pewter
