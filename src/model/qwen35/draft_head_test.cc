// A draft head has the rows of its tokens, in order, whatever the head is stored as.
#include "model/qwen35/draft_head.h"

#include <gtest/gtest.h>

#include "model/qwen35/testing/host_device.h"
#include "model/qwen35/testing/synthetic_checkpoint.h"
#include "tensor/formats/int8_row.h"

namespace pewter {
namespace {

Result<DraftHead> load(const SyntheticCheckpoint& synthetic, std::vector<int32_t> ids) {
  const TempDirectory directory;
  synthetic.write(directory);
  HostDevice device;
  const Checkpoint checkpoint = Checkpoint::open(directory.path()).value();
  const ModelConfig config = ModelConfig::parse(checkpoint.config()).value();
  return load_draft_head(checkpoint, config, device, std::move(ids));
}

// Each row as int8 makes it of the file's.
void expect_rows(const DraftHead& head, const WeightMatrix& file, const std::vector<int32_t>& ids) {
  ASSERT_EQ(head.rows.n, std::ssize(ids));
  ASSERT_EQ(head.rows.format, WeightFormat::kInt8Row);
  const auto width = static_cast<size_t>(file.k);
  std::vector<float> want(width), ours(width), coded(width);
  for (int64_t r = 0; r < head.rows.n; ++r) {
    const int32_t id = ids[static_cast<size_t>(r)];
    EXPECT_EQ(head.ids.empty() ? r : head.ids[static_cast<size_t>(r)], id);
    decode_row(file, 0, id, want.data());
    WeightMatrix codes =
        make_canonical_weight({.format = WeightFormat::kInt8Row, .n = 1, .k = file.k}).value();
    encode_int8(want.data(), codes, 0);
    decode_row(codes, 0, 0, coded.data());
    decode_row(head.rows, 0, r, ours.data());
    ASSERT_EQ(ours, coded) << r;
  }
}

const std::vector<int32_t> kSome = {0, 3, 4, 77, 128, 129, 254, 255};

TEST(DraftHead, HasTheRowsOfItsTokens) {
  const SyntheticCheckpoint synthetic;
  expect_rows(load(synthetic, kSome).value(), synthetic.expected.at("lm_head"), kSome);
}

TEST(DraftHead, OfTheFirstTokensNeedsNoList) {
  const SyntheticCheckpoint synthetic;
  std::vector<int32_t> first(200);
  for (size_t i = 0; i < first.size(); ++i) first[i] = static_cast<int32_t>(i);
  const DraftHead head = load(synthetic, first).value();
  EXPECT_TRUE(head.ids.empty());
  expect_rows(head, synthetic.expected.at("lm_head"), first);
}

TEST(DraftHead, OfQuantisedAndTiedHeads) {
  SyntheticCheckpoint quantised;
  quantised.set_quantization(R"({"quant_method": "fp8", "weight_block_size": [128, 128],
                                 "activation_scheme": "dynamic"})");
  quantised.pack_fp8("lm_head");
  expect_rows(load(quantised, kSome).value(), quantised.expected.at("lm_head"), kSome);
  SyntheticCheckpoint tied;
  tied.config.set("tie_word_embeddings", true);
  tied.erase("lm_head.weight");
  expect_rows(load(tied, kSome).value(), tied.expected.at("embed_tokens"), kSome);
}

TEST(DraftHead, FaultsNameTheTensor) {
  SyntheticCheckpoint synthetic;
  auto& bytes = synthetic.tensor("lm_head.weight").bytes;
  bytes[2 * 130] = std::byte{0x80};  // element [1, 2], infinity
  bytes[2 * 130 + 1] = std::byte{0x7F};
  const auto head = load(synthetic, kSome);
  ASSERT_FALSE(head);
  EXPECT_NE(head.error().message.find("lm_head.weight: element [1, 2] is not finite"),
            std::string::npos)
      << head.error().message;
}

}  // namespace
}  // namespace pewter
