// Drafters whose matrices are quantised: what is loaded is what the file says, to the bit, where
// the stages want it: fc in parts, queries with rows of zeros between heads.
#include <gtest/gtest.h>

#include <cmath>

#include "model/dflash/model.h"
#include "model/qwen35/testing/host_device.h"
#include "model/qwen35/testing/synthetic_checkpoint.h"

namespace pewter {
namespace {

constexpr int64_t kHidden = 256, kTaps = 2, kQueryHeads = 2, kKvHeads = 1, kMlp = 384;

const char* const kModules[] = {"fc",
                                "layers.0.self_attn.q_proj",
                                "layers.0.self_attn.k_proj",
                                "layers.0.self_attn.v_proj",
                                "layers.0.self_attn.o_proj",
                                "layers.0.mlp.gate_proj",
                                "layers.0.mlp.up_proj",
                                "layers.0.mlp.down_proj"};

SyntheticCheckpoint drafter(int64_t head_dim) {
  SyntheticCheckpoint made;
  made.tensors.clear();
  made.expected.clear();
  made.config = Json::parse(str_cat(R"({"architectures": ["DFlashDraftModel"], "hidden_size": )",
                                    kHidden, R"(, "num_hidden_layers": 1, "head_dim": )", head_dim,
                                    R"(, "num_attention_heads": )", kQueryHeads,
                                    R"(, "num_key_value_heads": )", kKvHeads,
                                    R"(, "intermediate_size": )", kMlp, R"(, "rms_norm_eps": 1e-6,
      "max_position_embeddings": 512, "block_size": 4, "rope_theta": 10000.0,
      "dflash_config": {"mask_token_id": 9, "target_layer_ids": [0, 1]}})"))
                    .value();
  const int64_t q = kQueryHeads * head_dim, kv = kKvHeads * head_dim;
  const std::pair<int64_t, int64_t> sizes[] = {{kHidden, kTaps * kHidden},
                                               {q, kHidden},
                                               {kv, kHidden},
                                               {kv, kHidden},
                                               {kHidden, q},
                                               {kMlp, kHidden},
                                               {kMlp, kHidden},
                                               {kHidden, kMlp}};
  for (size_t i = 0; i < std::size(kModules); ++i)
    made.add_module(kModules[i], sizes[i].first, sizes[i].second);
  for (const char* norm :
       {"hidden_norm", "norm", "layers.0.input_layernorm", "layers.0.post_attention_layernorm"})
    made.add(str_cat(norm, ".weight"), "BF16", {kHidden});
  for (const char* norm : {"layers.0.self_attn.q_norm", "layers.0.self_attn.k_norm"})
    made.add(str_cat(norm, ".weight"), "BF16", {head_dim});
  return made;
}

std::vector<float> row_of(const WeightMatrix& w, int64_t row) {
  std::vector<float> values(static_cast<size_t>(w.k));
  decode_row(w, 0, row, values.data());
  return values;
}

void expect_rows(const WeightMatrix& ours, const WeightMatrix& file) {
  ASSERT_EQ(ours.n, file.n);
  EXPECT_EQ(ours.format, file.format);
  for (int64_t r = 0; r < file.n; ++r) ASSERT_EQ(row_of(ours, r), row_of(file, r)) << r;
}

class QuantisedDflash : public testing::Test {
 protected:
  std::shared_ptr<const DflashModel> load(const SyntheticCheckpoint& made) {
    const TempDirectory directory;
    made.write(directory);
    auto loaded = DflashModel::load(directory.path(), device_);
    EXPECT_TRUE(loaded) << (loaded ? "" : loaded.error().message);
    if (!loaded) return nullptr;
    EXPECT_EQ((*loaded)->bytes, plan_dflash(directory.path(), device_)->stored_bytes);
    return *loaded;
  }
  // Everything but the queries and fc lies as it is in the file.
  static void expect_plain_ones(const DflashModel& model, const SyntheticCheckpoint& made) {
    const DflashLayer& layer = model.layers[0];
    const WeightMatrix* const loaded[] = {&layer.k,    &layer.v,  &layer.out,
                                          &layer.gate, &layer.up, &layer.down};
    for (size_t i = 0; i < std::size(loaded); ++i)
      expect_rows(*loaded[i], made.expected.at(kModules[i + 2]));
  }
  static void expect_queries(const DflashModel& model, const WeightMatrix& file, bool same_bits) {
    const WeightMatrix& q = model.layers[0].q;
    const int64_t dim = file.n / kQueryHeads;
    ASSERT_EQ(q.n, 2 * file.n);
    for (int64_t r = 0; r < file.n; ++r) {
      const int64_t at = r / dim * 2 * dim + r % dim;
      const std::vector<float> ours = row_of(q, at), theirs = row_of(file, r);
      for (size_t c = 0; c < theirs.size(); ++c)
        ASSERT_NEAR(ours[c], theirs[c], same_bits ? 0 : std::abs(theirs[c]) / 256) << r;
      for (const float x : row_of(q, at + dim)) ASSERT_EQ(x, 0) << r;  // no gate
    }
  }
  static void expect_fc(const DflashModel& model, const WeightMatrix& file) {
    ASSERT_EQ(model.fc.size(), 2u);
    for (int64_t r = 0; r < kHidden; ++r) {
      std::vector<float> parts;
      for (const WeightMatrix& part : model.fc) {
        EXPECT_EQ(part.format, file.format);
        const std::vector<float> row = row_of(part, r);
        parts.insert(parts.end(), row.begin(), row.end());
      }
      ASSERT_EQ(parts, row_of(file, r)) << r;
    }
  }
  HostDevice device_;
};

TEST_F(QuantisedDflash, Fp8KeepsItsBlocks) {
  SyntheticCheckpoint made = drafter(128);
  made.set_quantization(fp8_config());
  for (const char* module : kModules) made.pack_fp8(module);
  const auto model = load(made);
  ASSERT_NE(model, nullptr);
  expect_plain_ones(*model, made);
  EXPECT_EQ(model->layers[0].q.format, WeightFormat::kFp8Block128);
  expect_queries(*model, made.expected.at(kModules[1]), /*same_bits=*/true);
  expect_fc(*model, made.expected.at("fc"));
  EXPECT_LT(model->bytes, DflashModel::stored_bytes(model->config, device_, {}));
}

// A block of 128 rows holds two heads, between which zeros come: those rows become BF16.
TEST_F(QuantisedDflash, Fp8OfSmallHeadsIsDecoded) {
  SyntheticCheckpoint made = drafter(64);
  made.set_quantization(fp8_config());
  for (const char* module : kModules) made.pack_fp8(module);
  const auto model = load(made);
  ASSERT_NE(model, nullptr);
  expect_plain_ones(*model, made);
  EXPECT_EQ(model->layers[0].q.format, WeightFormat::kBF16);
  expect_queries(*model, made.expected.at(kModules[1]), /*same_bits=*/false);
}

TEST_F(QuantisedDflash, Int4KeepsItsGroupsAndZeroPoints) {
  for (const bool symmetric : {true, false}) {
    SyntheticCheckpoint made = drafter(64);
    made.set_quantization(auto_round_config(ZeroStyle::kMinusOne, symmetric));
    // fc is in no block of layers, which are what AutoRound quantises.
    for (const char* module : std::span(kModules).subspan(1))
      made.pack_int4(module, {.symmetric = symmetric});
    const auto model = load(made);
    ASSERT_NE(model, nullptr);
    expect_plain_ones(*model, made);
    EXPECT_EQ(model->layers[0].q.format, WeightFormat::kInt4Group128);
    expect_queries(*model, made.expected.at(kModules[1]), /*same_bits=*/true);
    expect_fc(*model, made.expected.at("fc"));
  }
}

}  // namespace
}  // namespace pewter
