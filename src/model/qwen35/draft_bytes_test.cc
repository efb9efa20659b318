// What drafting needs, against figures worked out by hand and published ones.
#include "model/dflash/draft_bytes.h"

#include <gtest/gtest.h>

#include "model/dflash/random.h"
#include "model/qwen35/shapes.h"
#include "model/qwen35/testing/host_device.h"

namespace pewter {
namespace {

void expect_within_a_percent(double value, double want) { EXPECT_NEAR(value, want, 0.01 * want); }

struct Mtp122B {
  ModelConfig config = shape_config("qwen3.5-122b").value();
  Footprint footprint;
  explicit Mtp122B(const char* format)
      : footprint(
            pewter::footprint(config, /*with_mtp=*/true,
                              shape_formats("hybrid", {.head = "int8", .mtp = format}).value())) {}
  double bytes(int64_t head_rows, const DraftStep& step) const {
    return mtp_draft_bytes(config, footprint, draft_ends(config, footprint, head_rows), step);
  }
};

// 215.5 MB, eight experts of 18.87 MB, and the head.
TEST(MtpDraftBytes, OneGuessInBf16) {
  expect_within_a_percent(Mtp122B("bf16").bytes(0, {}) / 1e6, 215.5 + 151.0 + 763.8);
}

// fc, router and gate stay bf16: 39.3 MB; 163.6 million others at 4.125 bits; 32,768 rows of int8.
TEST(MtpDraftBytes, ThreeGuessesInInt4WithAShortlist) {
  const Mtp122B mtp("int4");
  const double one = mtp.bytes(32768, {});
  expect_within_a_percent(one / 1e6, 39.3 + 163.6 * 4.125 / 8 + 100.8);
  EXPECT_NEAR(mtp.bytes(32768, {.drafts = 3}), 3 * one, 0.001 * one);
}

TEST(MtpDraftBytes, ContextIsReadForEveryGuess) {
  const Mtp122B mtp("int4");
  const double shallow = mtp.bytes(32768, {.drafts = 2}),
               deep = mtp.bytes(32768, {.drafts = 2, .context = 1000});
  EXPECT_EQ(deep - shallow, 2 * 1000 * 2048.0);  // 2 heads of 256, keys and values, bf16
}

// Two sequences read the weights once and not quite twice the experts.
TEST(MtpDraftBytes, SequencesShareWeights) {
  const Mtp122B mtp("bf16");
  const double more = mtp.bytes(32768, {.sequences = 2}) - mtp.bytes(32768, {});
  expect_within_a_percent(more / 1e6, 18.87 * 7.75);
}

// The published drafters' parameters, in bf16; norms are f32 on the device.
TEST(DflashShapes, HaveThePublishedSizes) {
  for (const auto& [shape, parameters] :
       {std::pair("qwen3.5-122b", 773'893'632), {"qwen3.5-35b", 385'906'176}}) {
    const DflashConfig c = dflash_shape(shape).value();
    EXPECT_TRUE(c.check_target(shape_config(shape).value()));
    EXPECT_EQ(c.block_size, 16);
    EXPECT_EQ(c.taps.size(), 8u);
    const int64_t hidden = c.hidden_size;
    const int64_t layer = hidden * (2 * c.query_width() + 2 * c.kv_width()) +
                          3 * hidden * c.intermediate_size + 2 * hidden + 2 * c.head_dim;
    EXPECT_EQ(c.layers * layer + std::ssize(c.taps) * hidden * hidden + 2 * hidden, parameters);
  }
  EXPECT_EQ(dflash_shape("qwen3.5-122b")->taps,
            (std::vector<int64_t>{1, 7, 14, 20, 26, 32, 39, 45}));
  const auto none = dflash_shape("qwen3.5-27b");
  ASSERT_FALSE(none);
  EXPECT_NE(none.error().message.find("qwen3.5-122b"), std::string::npos);
}

TEST(DflashDraftBytes, AreItsWeightsOnceAndTheContext) {
  HostDevice device;
  const DflashConfig config = dflash_shape("third").value();
  const auto bf16 = make_random_dflash(device, config, {}).value();
  const DraftEnds ends{.head = 1e6, .embedding_row = 2048};
  const double one = dflash_draft_bytes(*bf16, ends, 2, {});
  // Two layers of 3.1, 0.8 and 9.4 million, three fc of a million; two rows of each kind.
  const double weights =
      2 * (2 * (2 * 1024 * 1536 + 2 * 1024 * 384 + 3 * 1024 * 3072) + 3 * 1024 * 1024);
  EXPECT_NEAR(one, weights + 1e6 + 2 * 2048, 60e3);
  EXPECT_EQ(dflash_draft_bytes(*bf16, ends, 2, {.drafts = 5}) - one,
            4 * (2048 + 2 * 2 * 384 * 2.0));
  // The window of the first layer is 4,096 positions.
  EXPECT_EQ(dflash_draft_bytes(*bf16, ends, 2, {.context = 10000}) - one,
            (10000 + 4096) * 2 * 384 * 2.0);
  const WeightSpec int4 = weight_spec_named("format", "int4", kDraftFormats).value();
  const auto small = make_random_dflash(device, config, int4).value();
  EXPECT_NEAR(dflash_draft_bytes(*small, ends, 2, {}) - ends.head, (one - ends.head) * 4.125 / 16,
              60e3);
  EXPECT_EQ(small->bytes, DflashModel::stored_bytes(config, device, int4));
}

}  // namespace
}  // namespace pewter
