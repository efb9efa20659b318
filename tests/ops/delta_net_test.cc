// The delta block against its stages in turn: every tensor they leave, bit for bit, for any number
// of rows and whatever part of the tape was accepted.

#include "ops/op_rig.h"

namespace pewter::test {
namespace {

constexpr float kEpsilon = 1e-6f;

struct NetCase {
  std::string name;
  WeightFormat format;  // of the projections; the gates' are bf16
  WeightFormat out_format;
  int64_t hidden, key_heads, value_heads, key_dim, value_dim;

  int64_t channels() const { return 2 * key_heads * key_dim + value_heads * value_dim; }
  int64_t out_width() const { return value_heads * value_dim; }
  int64_t width() const { return channels() + out_width() + 2 * value_heads; }
};

class DeltaNet : public OpTest<NetCase> {
 protected:
  static constexpr int64_t kSlots = 2;

  void prepare() override {
    const NetCase& c = tested();
    const auto make = [&](WeightFormat format, int64_t n, int64_t k, uint64_t seed) {
      return TestWeight(
          random_weight({.format = format, .n = n, .k = k, .scale_dtype = DType::kBF16}, seed),
          target());
    };
    qkv_ = make(c.format, c.channels(), c.hidden, 1);
    z_ = make(c.format, c.out_width(), c.hidden, 2);
    b_ = make(WeightFormat::kBF16, c.value_heads, c.hidden, 3);
    a_ = make(WeightFormat::kBF16, c.value_heads, c.hidden, 4);
    out_ = make(c.out_format, c.hidden, c.out_width(), 5);
  }

  // What steps of `rows` rows each leave, the second of which has accepted some of the first's.
  std::vector<Floats> run(Ops& ops, int64_t rows, bool as_block) const {
    const NetCase& c = tested();
    const DType act = ops.activation_dtype();
    const Tensor norm = Tensor::of(DType::kF32, {c.hidden}, random_values(c.hidden, 6, 0.1f));
    const Tensor conv =
        Tensor::of(DType::kF32, {c.channels(), 4}, random_values(c.channels() * 4, 7, 0.5f));
    const Tensor a_log =
        Tensor::of(DType::kF32, {c.value_heads}, random_values(c.value_heads, 8, 0.5f));
    const Tensor dt_bias =
        Tensor::of(DType::kF32, {c.value_heads}, random_values(c.value_heads, 9));
    const Tensor head_norm = Tensor::of(DType::kF32, {c.value_dim}, random_values(c.value_dim, 10));
    const Tensor state =
        Tensor::zeros(DType::kF32, {kSlots, c.value_heads, c.key_dim, c.value_dim});
    const Tensor window = Tensor::zeros(act, {kSlots, 3, c.channels()});
    const Tensor tape = Tensor::zeros(act, {kSlots, kMaxDecodeRows, c.channels()});
    const Tensor gates = Tensor::zeros(DType::kF32, {kSlots, kMaxDecodeRows, 2, c.value_heads});
    const WeightMatrix* const in[] = {&qkv_.of(ops), &z_.of(ops), &b_.of(ops), &a_.of(ops)};
    std::vector<Floats> left;
    for (int32_t step = 0; step < 2; ++step) {
      const int32_t begin[] = {0, static_cast<int32_t>(rows)}, slot[] = {1},
                    accepted[] = {step == 0 ? 0 : static_cast<int32_t>((rows + 1) / 2)};
      const Batch batch{.phase = Phase::kDecode,
                        .rows = rows,
                        .sequences = 1,
                        .row_begin = begin,
                        .slot = slot,
                        .accepted = accepted};
      const auto seed = static_cast<uint64_t>(20 + step);
      const Tensor x =
          Tensor::of(DType::kF32, {rows, c.hidden}, random_values(rows * c.hidden, seed));
      const Tensor residual =
          Tensor::of(DType::kF32, {rows, c.hidden}, random_values(rows * c.hidden, seed + 10));
      const Tensor partial = Tensor::zeros(DType::kF32, {rows, c.hidden});
      const Tensor projected = Tensor::zeros(act, {rows, c.width()});
      const Tensor mixed = Tensor::zeros(act, {rows, c.out_width()});
      const DeltaNetArgs args{.in = {.x = x.view,
                                     .norm = norm.view,
                                     .epsilon = kEpsilon,
                                     .w = in,
                                     .out = projected.view},
                              .mix = {.batch = batch,
                                      .in = projected.view,
                                      .conv = conv.view,
                                      .a_log = a_log.view,
                                      .dt_bias = dt_bias.view,
                                      .norm = head_norm.view,
                                      .epsilon = kEpsilon,
                                      .key_heads = c.key_heads,
                                      .value_heads = c.value_heads,
                                      .key_dim = c.key_dim,
                                      .value_dim = c.value_dim,
                                      .state = {.state = state.view,
                                                .window = window.view,
                                                .tape = tape.view,
                                                .gates = gates.view},
                                      .out = mixed.view},
                              .out = {.x = mixed.view,
                                      .w = out_.of(ops),
                                      .partial = partial.view,
                                      .residual = residual.view}};
      run_ops(ops, [&] {
        if (as_block) return ops.delta_net(args);
        ops.norm_linear(args.in);
        ops.delta_mix(args.mix);
        ops.linear_add(args.out);
      });
      for (const Tensor* t : {&projected, &mixed, &partial, &residual, &state, &window, &gates})
        left.push_back(t->floats());
    }
    return left;
  }

  TestWeight qkv_, z_, b_, a_, out_;
};

TEST_P(DeltaNet, BlockEqualsItsStages) {
  const auto ops = make_fast(2);
  for (const int64_t rows : {1, 2, 3, 4, 5, 8, 9, 16}) {
    const std::vector<Floats> block = run(*ops, rows, true), stages = run(*ops, rows, false);
    ASSERT_EQ(block.size(), stages.size());
    const char* const names[] = {"projections", "mixed",  "partial", "residual",
                                 "state",       "window", "gates"};
    for (size_t i = 0; i < block.size(); ++i)
      expect_same_bits(block[i], stages[i],
                       "rows=" + std::to_string(rows) + ", step " +
                           std::to_string(i / std::size(names)) + ": " +
                           names[i % std::size(names)]);
  }
}

const auto kCases = testing::Values(
    NetCase{"small", WeightFormat::kInt4Group128, WeightFormat::kInt4Group128, 256, 2, 4, 16, 32},
    NetCase{"int4", WeightFormat::kInt4Group128, WeightFormat::kInt4Group128, 384, 2, 4, 128, 128},
    NetCase{"fp8", WeightFormat::kFp8Block128, WeightFormat::kFp8Block128, 384, 2, 4, 128, 128},
    NetCase{"int4_out_bf16", WeightFormat::kInt4Group128, WeightFormat::kBF16, 384, 2, 4, 128, 128},
    // Widths whose rows stay in registers.
    NetCase{"k2048", WeightFormat::kInt4Group128, WeightFormat::kInt4Group128, 2048, 2, 4, 128,
            128},
    NetCase{"k3072", WeightFormat::kInt4Group128, WeightFormat::kInt4Group128, 3072, 2, 4, 128,
            128},
    // Wider output projections; as many units of the projections as the blocks of threads of a
    // large GPU take in turn, and more tiles of the output projection than there are such blocks.
    NetCase{"16_heads", WeightFormat::kInt4Group128, WeightFormat::kInt4Group128, 384, 8, 16, 128,
            128},
    NetCase{"32_heads", WeightFormat::kInt4Group128, WeightFormat::kInt4Group128, 384, 16, 32, 128,
            128},
    NetCase{"64_heads", WeightFormat::kInt4Group128, WeightFormat::kInt4Group128, 384, 16, 64, 128,
            128},
    NetCase{"two_tiles_out", WeightFormat::kInt4Group128, WeightFormat::kInt4Group128, 4096, 8, 16,
            128, 128});
const auto kName = [](const auto& info) { return std::get<1>(info.param).name; };
INSTANTIATE_TEST_SUITE_P(Cpu, DeltaNet, testing::Combine(testing::Values(Target::kCpu), kCases),
                         kName);
INSTANTIATE_TEST_SUITE_P(Cuda, DeltaNet, testing::Combine(testing::ValuesIn(cuda_target()), kCases),
                         kName);

}  // namespace
}  // namespace pewter::test
