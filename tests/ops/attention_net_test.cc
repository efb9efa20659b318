// The attention block against its stages in turn: every tensor they leave, keys and values
// included, bit for bit, for a row behind contexts that end anywhere in a stretch, a page or a
// tile. Of backends that do more than run the stages.

#include "backend/ceilings.h"
#include "backend/factory.h"
#include "ops/op_rig.h"

namespace pewter::test {
namespace {

constexpr float kEpsilon = 1e-6f;
constexpr int64_t kHeadDim = 256, kRotary = 64, kPages = 9;

struct NetCase {
  std::string name;
  WeightFormat format, out_format;
  int64_t hidden, query_heads, kv_heads;
  bool is_one_kernel = true;  // on a GPU with room for two of its blocks of threads

  int64_t out_width() const { return query_heads * kHeadDim; }
  int64_t width() const { return 2 * (query_heads + kv_heads) * kHeadDim; }
};

class AttentionNet : public OpTest<NetCase> {
 protected:
  void prepare() override {
    const NetCase& c = tested();
    const auto make = [&](WeightFormat format, int64_t n, int64_t k, uint64_t seed) {
      return TestWeight(
          random_weight({.format = format, .n = n, .k = k, .scale_dtype = DType::kBF16}, seed),
          target());
    };
    q_ = make(c.format, 2 * c.query_heads * kHeadDim, c.hidden, 1);
    k_ = make(c.format, c.kv_heads * kHeadDim, c.hidden, 2);
    v_ = make(c.format, c.kv_heads * kHeadDim, c.hidden, 3);
    out_ = make(c.out_format, c.hidden, c.out_width(), 4);
  }

  struct Left {
    std::vector<Floats> tensors;
    bool has_queries;  // which the block as one kernel keeps to itself
  };
  // What a row behind `context` positions leaves.
  Left run(Ops& ops, int32_t context, bool as_block) const {
    const NetCase& c = tested();
    const DType act = ops.activation_dtype();
    const Tensor norm = Tensor::of(DType::kF32, {c.hidden}, random_values(c.hidden, 5, 0.1f));
    const Tensor q_norm = Tensor::of(DType::kF32, {kHeadDim}, random_values(kHeadDim, 6, 0.1f)),
                 k_norm = Tensor::of(DType::kF32, {kHeadDim}, random_values(kHeadDim, 7, 0.1f));
    Floats frequencies;
    std::vector<int32_t> axis;
    for (int32_t i = 0; i < kRotary / 2; ++i) {
      frequencies.push_back(std::pow(1e7f, -static_cast<float>(i) / (kRotary / 2)));
      axis.push_back(i % 3);
    }
    const Tensor frequency = Tensor::of(DType::kF32, {kRotary / 2}, frequencies);
    const std::initializer_list<int64_t> plane = {kPages, c.kv_heads, kPageTokens, kHeadDim};
    const int64_t elements = kPages * c.kv_heads * kPageTokens * kHeadDim;
    const Tensor keys = Tensor::of(DType::kBF16, plane, random_values(elements, 8)),
                 values = Tensor::of(DType::kBF16, plane, random_values(elements, 9));
    const int64_t page_bytes = c.kv_heads * kPageTokens * kHeadDim * 2;
    const KvLayer kv{.key_format = KvFormat::kBF16,
                     .value_format = KvFormat::kBF16,
                     .keys = keys.view.data(),
                     .values = values.view.data(),
                     .key_page_bytes = page_bytes,
                     .value_page_bytes = page_bytes,
                     .kv_heads = c.kv_heads,
                     .head_dim = kHeadDim};
    // The pages before repeat themselves; the last one, which is written, is one of its own.
    std::vector<int32_t> table;
    for (int32_t page = 0; page < context / kPageTokens; ++page)
      table.push_back(page * 3 % (kPages - 1));
    table.push_back(kPages - 1);
    const int32_t begin[] = {0, 1}, sequence[] = {0}, delta[] = {2},
                  positions[] = {context, context + 1, context + 2};
    const Batch batch{.phase = Phase::kDecode,
                      .rows = 1,
                      .sequences = 1,
                      .page_table_stride = std::ssize(table),
                      .is_short = true,
                      .positions = positions,
                      .position_delta = delta,
                      .row_sequence = sequence,
                      .row_begin = begin,
                      .context_length = &context,
                      .page_table = table.data()};
    const Tensor x = Tensor::of(DType::kF32, {1, c.hidden}, random_values(c.hidden, 10)),
                 residual = Tensor::of(DType::kF32, {1, c.hidden}, random_values(c.hidden, 11)),
                 partial = Tensor::zeros(DType::kF32, {1, c.hidden}),
                 projected = Tensor::zeros(act, {1, c.width()}),
                 queries = Tensor::zeros(act, {1, c.out_width()}),
                 mixed = Tensor::zeros(act, {1, c.out_width()});
    const WeightMatrix* const in[] = {&q_.of(ops), &k_.of(ops), &v_.of(ops)};
    const AttentionNetArgs args{
        .in = {.x = x.view, .norm = norm.view, .epsilon = kEpsilon, .w = in, .out = projected.view},
        .prepare = {.batch = batch,
                    .in = projected.view,
                    .q_norm = q_norm.view,
                    .k_norm = k_norm.view,
                    .epsilon = kEpsilon,
                    .query_heads = c.query_heads,
                    .kv_heads = c.kv_heads,
                    .head_dim = kHeadDim,
                    .rotary_dim = kRotary,
                    .inverse_frequency = frequency.view,
                    .axis = axis.data(),
                    .kv = kv,
                    .q = queries.view},
        .attention = {.batch = batch,
                      .q = queries.view,
                      .in = projected.view,
                      .query_heads = c.query_heads,
                      .kv_heads = c.kv_heads,
                      .head_dim = kHeadDim,
                      .kv = kv,
                      .out = mixed.view},
        .out = {.x = mixed.view,
                .w = out_.of(ops),
                .partial = partial.view,
                .residual = residual.view}};
    run_ops(ops, [&] {
      if (as_block) return ops.attention_net(args);
      ops.norm_linear(args.in);
      ops.attention_prepare(args.prepare);
      ops.attention(args.attention);
      ops.linear_add(args.out);
    });
    Left left{.has_queries = !std::isnan(queries.floats().front())};
    for (const Tensor* t : {&projected, &mixed, &partial, &residual, &keys, &values})
      left.tensors.push_back(t->floats());
    return left;
  }

  TestWeight q_, k_, v_, out_;
};

TEST_P(AttentionNet, BlockEqualsItsStages) {
  const auto ops = make_fast();
  const bool has_room =
      make_ceilings({.device = "cuda"}).value()->processors().find("capability 9.") !=
      std::string::npos;
  for (const int32_t context : {0, 1, 31, 32, 33, 63, 64, 65, 500, 1023, 1024, 1151, 1152, 4095,
                                4096, 6000, static_cast<int32_t>(kShortContext) - 1}) {
    const Left block = run(*ops, context, true), stages = run(*ops, context, false);
    EXPECT_EQ(block.has_queries, !has_room || !tested().is_one_kernel);
    EXPECT_TRUE(stages.has_queries);
    const char* const names[] = {"projections", "mixed", "partial", "residual", "keys", "values"};
    for (size_t i = 0; i < std::size(names); ++i)
      expect_same_bits(block.tensors[i], stages.tensors[i],
                       "behind " + std::to_string(context) + " positions: " + names[i]);
  }
}

constexpr auto kInt4 = WeightFormat::kInt4Group128, kFp8 = WeightFormat::kFp8Block128,
               kBf16 = WeightFormat::kBF16;
const auto kName = [](const auto& info) { return std::get<1>(info.param).name; };
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(AttentionNet);  // in builds without CUDA
INSTANTIATE_TEST_SUITE_P(
    Cuda, AttentionNet,
    testing::Combine(testing::ValuesIn(cuda_target()),
                     testing::Values(NetCase{"ratio4", kInt4, kInt4, 256, 8, 2},
                                     NetCase{"ratio6", kInt4, kInt4, 384, 24, 4},
                                     NetCase{"one_kv_head", kInt4, kInt4, 384, 12, 1},
                                     NetCase{"fp8", kFp8, kFp8, 384, 16, 2},
                                     NetCase{"out_bf16", kInt4, kBf16, 384, 16, 2},
                                     // A row that is normalised by a kernel before.
                                     NetCase{"k5120", kInt4, kInt4, 5120, 24, 4},
                                     NetCase{"fp8_out_int4", kFp8, kInt4, 384, 16, 2},
                                     // Rows that stay in registers; the heads of the 35B and 122B.
                                     NetCase{"k2048", kInt4, kInt4, 2048, 16, 2},
                                     NetCase{"k3072", kInt4, kInt4, 3072, 32, 2},
                                     // More query heads than a tile has rows: stages in turn.
                                     NetCase{"ratio20", kInt4, kInt4, 384, 20, 1, false})),
    kName);

}  // namespace
}  // namespace pewter::test
