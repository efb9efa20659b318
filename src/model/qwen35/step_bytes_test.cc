// The yardstick of every benchmark, against figures worked out by hand and published ones.
#include "model/qwen35/step_bytes.h"

#include <gtest/gtest.h>

#include "model/qwen35/shapes.h"

namespace pewter {
namespace {

Footprint footprint_of(const ModelConfig& config, std::string_view format,
                       const char* head = "bf16") {
  return footprint(config, /*with_mtp=*/false, shape_formats(format, {.head = head}).value());
}

void expect_within_a_percent(double value, double want) { EXPECT_NEAR(value, want, 0.01 * want); }

class Hybrid122B : public testing::Test {
 protected:
  double gigabytes(const DecodeStep& step) const {
    return decode_bytes(config_, footprint_, step).total() / 1e9;
  }
  ModelConfig config_ = shape_config("qwen3.5-122b").value();
  Footprint footprint_ = footprint_of(config_, "hybrid", "int8");
};

TEST_F(Hybrid122B, OneToken) { expect_within_a_percent(gigabytes({}), 5.62); }

TEST_F(Hybrid122B, EightRowsOfOneSequence) {
  const double distinct = uniform_experts(config_, 8);
  EXPECT_NEAR(distinct, 57.42, 0.01);
  expect_within_a_percent(gigabytes({.rows = 8, .distinct_experts = distinct}), 17.16);
}

TEST_F(Hybrid122B, ThirtyTwoSequences) {
  expect_within_a_percent(
      gigabytes({.sequences = 32, .rows = 32, .distinct_experts = uniform_experts(config_, 32)}),
      51.3);
}

TEST_F(Hybrid122B, ReadsTheContextOnceASequence) {
  const DecodeStep none{.sequences = 2, .rows = 8};
  DecodeStep deep = none;
  deep.context = 32768;
  const StepBytes shallow = decode_bytes(config_, footprint_, none);
  const StepBytes bytes = decode_bytes(config_, footprint_, deep);
  EXPECT_EQ(shallow.kv, 8 * 24576);  // the new rows
  EXPECT_EQ(bytes.kv - shallow.kv, 2.0 * 32768 * 24576);
  EXPECT_EQ(bytes.weights, shallow.weights);
  EXPECT_EQ(bytes.state, 2 * 2.0 * (150'994'944 + 2'654'208));
}

TEST_F(Hybrid122B, EveryRowReadsItsEmbedding) {
  const double one = decode_bytes(config_, footprint_, {}).weights;
  EXPECT_EQ(decode_bytes(config_, footprint_, {.rows = 3}).weights, one + 2 * 6144);
}

// int4 with fp8 shared experts and an int8 head: 1.99 GB.
TEST(StepBytes, Hybrid35B) {
  const ModelConfig config = shape_config("qwen3.5-35b").value();
  const StepBytes bytes = decode_bytes(config, footprint_of(config, "hybrid", "int8"), {});
  expect_within_a_percent(bytes.total() / 1e9, 1.99);
}

TEST(StepBytes, SymmetricInt4IsFourAndAnEighthBits) {
  const ModelConfig config = shape_config("third").value();
  const StepBytes bytes = decode_bytes(config, footprint_of(config, "int4"), {});
  EXPECT_EQ(bytes.experts, 16.0 * 8 * 3 * 256 * 1024 * 4.125 / 8);
}

// 0.560 GB of weights in bf16 and 25 MB of state, by an independent count.
TEST(StepBytes, ThirdInBF16) {
  const ModelConfig config = shape_config("third").value();
  const Footprint bf16 = footprint_of(config, "bf16");
  EXPECT_NEAR(static_cast<double>(bf16.total.parameters), 1.017e9, 0.001e9);
  const StepBytes bytes = decode_bytes(config, bf16, {});
  expect_within_a_percent((bytes.weights + bytes.experts) / 1e9, 0.560);
  expect_within_a_percent(bytes.state / 1e9, 0.0257);
}

TEST(StepBytes, ADenseModelHasNoExperts) {
  const ModelConfig config = shape_config("qwen3.5-27b").value();
  const StepBytes bytes = decode_bytes(config, footprint_of(config, "bf16"), {.rows = 8});
  EXPECT_EQ(bytes.experts, 0);
  EXPECT_EQ(uniform_experts(config, 8), 0);
  expect_within_a_percent(bytes.weights / 1e9, 2 * 25.625);
}

// 16.5 GFLOP a token, and 0.39 MFLOP times half the context for attention.
TEST(PrefillFlops, Of122B) {
  const ModelConfig config = shape_config("qwen3.5-122b").value();
  const double tokens = 8192;
  const double flops = prefill_flops(config, {.tokens = 8192, .logits_rows = 1});
  const double attention = 0.393e6 * tokens / 2;
  expect_within_a_percent(flops / tokens, 16.5e9 + attention + 0.226e9);
  const double later = prefill_flops(config, {.tokens = 8192, .context = 8192});
  expect_within_a_percent((later - flops) / tokens, 0.393e6 * tokens);
  const double head = 2.0 * 248320 * 3072;
  EXPECT_EQ(prefill_flops(config, {.tokens = 8192, .logits_rows = 2}) - flops, head);
}

TEST(Shapes, HaveTheParametersOfTheirNames) {
  const auto billions = [](std::string_view name) {
    return static_cast<double>(footprint_of(shape_config(name).value(), "bf16").total.parameters) /
           1e9;
  };
  EXPECT_NEAR(billions("qwen3.5-0.8b"), 0.752, 0.001);
  EXPECT_NEAR(billions("qwen3.5-27b"), 26.896, 0.001);
  EXPECT_NEAR(billions("qwen3.5-35b"), 34.661, 0.001);
  EXPECT_NEAR(billions("qwen3.5-122b"), 122.112, 0.001);
}

TEST(Shapes, RefuseUnknownNames) {
  const auto shape = shape_config("qwen3.5-1b");
  ASSERT_FALSE(shape);
  EXPECT_NE(shape.error().message.find("third, qwen3.5-0.8b"), std::string::npos)
      << shape.error().message;
  EXPECT_FALSE(shape_formats("int5"));
  EXPECT_FALSE(shape_formats("int4", {.head = "f32"}));
  EXPECT_TRUE(shape_formats("int4", {.head = "int8"}));
}

// What checkpoints leave in bf16 stays in it.
TEST(Shapes, Int4LeavesWhatCheckpointsLeave) {
  const Footprint f = footprint_of(shape_config("third").value(), "int4");
  for (const ComponentBytes& component : f.components) {
    const bool plain = component.name == "embedding" || component.name == "router" ||
                       component.name == "shared_gate" || component.name == "delta_gates" ||
                       component.name == "lm_head";
    const std::string want = component.name == "small" ? "f32" : plain ? "bf16" : "int4_group128";
    EXPECT_EQ(component.formats, want) << component.name;
  }
}

}  // namespace
}  // namespace pewter
