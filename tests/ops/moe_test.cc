// Mixture of experts: each stage against the reference on the same inputs, the block against its
// stages, the row law under every grouping, the thread law, no allocation.

#include "ops/op_rig.h"
#include "ops/tolerance.h"

namespace pewter::test {
namespace {

constexpr WeightFormat kBf = WeightFormat::kBF16, kF8 = WeightFormat::kFp8Block128,
                       kI4 = WeightFormat::kInt4Group128;

struct MoeCase {
  std::string name;
  WeightFormat format, shared_format;
  int64_t hidden, width, shared_width, experts, top_k;
  DType scale_dtype = DType::kF32;
  bool zeros = false;  // int4
};

struct MoeOutputs {
  Floats normed, weight, shared_weight, hidden, shared_hidden, partial, residual;
  std::vector<int32_t> expert;
};

// A layer's experts, as one block or its stages in turn.
struct MoeLayer {
  static constexpr float kEpsilon = 1e-6f;
  const TestWeight &router, &shared_gate, &gate, &up, &down, &shared_up_gate, &shared_up,
      &shared_down;

  // x: rows as long as norm; residual: as x, or none.
  MoeOutputs run(Ops& ops, const Floats& x_rows, const Floats& norm_values,
                 const Floats& residual_rows, int64_t top_k, bool as_block) const {
    const DType act = ops.activation_dtype();
    const auto size = [](const Floats& all) { return static_cast<int64_t>(all.size()); };
    const int64_t width = size(norm_values), m = size(x_rows) / width;
    const Tensor x = Tensor::of(DType::kF32, {m, width}, x_rows);
    const Tensor norm = Tensor::of(DType::kF32, {width}, norm_values);
    const Tensor normed = Tensor::zeros(act, {m, width});
    const Tensor expert = Tensor::zeros(DType::kI32, {m, top_k});
    const Tensor weight = Tensor::zeros(DType::kF32, {m, top_k});
    const Tensor shared_weight = Tensor::zeros(DType::kF32, {m});
    const Tensor hidden = Tensor::zeros(act, {m, top_k, gate.canonical.n});
    const Tensor shared_hidden = Tensor::zeros(act, {m, shared_up.canonical.n});
    const Tensor partial = Tensor::zeros(DType::kF32, {m, width});
    const bool joins = !residual_rows.empty();
    const Tensor residual = joins ? Tensor::of(DType::kF32, {m, width}, residual_rows)
                                  : Tensor::zeros(DType::kF32, {m, width});
    const MoeArgs args{.route = {.x = x.view,
                                 .norm = norm.view,
                                 .epsilon = kEpsilon,
                                 .router = router.of(ops),
                                 .shared_gate = shared_gate.of(ops),
                                 .normed = normed.view,
                                 .expert = expert.view,
                                 .weight = weight.view,
                                 .shared_weight = shared_weight.view},
                       .up = {.normed = normed.view,
                              .expert = expert.view,
                              .gate = gate.of(ops),
                              .up = up.of(ops),
                              .shared_gate = shared_up_gate.of(ops),
                              .shared_up = shared_up.of(ops),
                              .hidden = hidden.view,
                              .shared_hidden = shared_hidden.view},
                       .down = {.hidden = hidden.view,
                                .shared_hidden = shared_hidden.view,
                                .expert = expert.view,
                                .weight = weight.view,
                                .shared_weight = shared_weight.view,
                                .down = down.of(ops),
                                .shared_down = shared_down.of(ops),
                                .partial = partial.view,
                                .residual = joins ? residual.view : TensorView{}}};
    run_ops(ops, [&] {
      if (as_block) return ops.moe(args);
      ops.route(args.route);
      ops.experts_up(args.up);
      ops.experts_down_add(args.down);
    });
    const auto* experts = expert.data<int32_t>();
    return {.normed = normed.floats(),
            .weight = weight.floats(),
            .shared_weight = shared_weight.floats(),
            .hidden = hidden.floats(),
            .shared_hidden = shared_hidden.floats(),
            .partial = partial.floats(),
            .residual = residual.floats(),
            .expert = {experts, experts + m * top_k}};
  }
};

class Moe : public OpTest<MoeCase> {
 protected:
  static constexpr int64_t kRows = kMostRows;
  static constexpr float kEpsilon = MoeLayer::kEpsilon;

  void prepare() override {
    const MoeCase& c = tested();
    const auto make = [&](WeightFormat format, int64_t n, int64_t k, int64_t count, uint64_t seed) {
      const WeightSpec spec{.format = format,
                            .n = n,
                            .k = k,
                            .count = count,
                            .scale_dtype = format == kI4 ? c.scale_dtype : DType::kBF16,
                            .has_zeros = c.zeros && format == kI4};
      return TestWeight(random_weight(spec, seed), target());
    };
    router_ = make(WeightFormat::kBF16, c.experts, c.hidden, 1, 1);
    shared_gate_ = make(WeightFormat::kBF16, 1, c.hidden, 1, 2);
    gate_ = make(c.format, c.width, c.hidden, c.experts, 3);
    up_ = make(c.format, c.width, c.hidden, c.experts, 4);
    down_ = make(c.format, c.hidden, c.width, c.experts, 5);
    shared_up_gate_ = make(c.shared_format, c.shared_width, c.hidden, 1, 6);
    shared_up_ = make(c.shared_format, c.shared_width, c.hidden, 1, 7);
    shared_down_ = make(c.shared_format, c.hidden, c.shared_width, 1, 8);
    x_ = random_values(kRows * c.hidden, 9);
    norm_ = random_values(c.hidden, 10, 0.1f);
    // Inputs of the later stages are given, not computed, so that each stage is compared alone.
    Rng rng(11);
    for (int64_t r = 0; r < kRows; ++r) {
      const auto first = static_cast<int32_t>(rng.below(static_cast<uint64_t>(c.experts)));
      for (int64_t slot = 0; slot < c.top_k; ++slot)
        chosen_.push_back(static_cast<int32_t>((first + slot * 3) % c.experts));
    }
    weights_ = random_values(kRows * c.top_k, 12);
    shared_weights_ = random_values(kRows, 13);
    hidden_ = random_values(kRows * c.top_k * c.width, 14);
    shared_hidden_ = random_values(kRows * c.shared_width, 15);
    residual_ = random_values(kRows * c.hidden, 16);
  }

  static Floats part(const Floats& all, int64_t from, int64_t count) {
    return {all.begin() + from, all.begin() + from + count};
  }

  // Rows first … first + m − 1.
  MoeOutputs run(Ops& ops, int64_t first, int64_t m) const {
    const MoeCase& c = tested();
    const DType act = ops.activation_dtype();
    const auto rows = [&](DType dtype, const Floats& all, int64_t n) {
      return Tensor::of(dtype, {m, n}, part(all, first * n, m * n));
    };
    const Tensor x = rows(DType::kF32, x_, c.hidden);
    const Tensor norm = Tensor::of(DType::kF32, {c.hidden}, norm_);
    const Tensor normed = Tensor::zeros(act, {m, c.hidden});
    const Tensor expert = Tensor::zeros(DType::kI32, {m, c.top_k});
    const Tensor weight = Tensor::zeros(DType::kF32, {m, c.top_k});
    const Tensor shared_weight = Tensor::zeros(DType::kF32, {m});
    const Tensor given = rows(act, x_, c.hidden);
    const Tensor chosen = Tensor::zeros(DType::kI32, {m, c.top_k});
    std::copy_n(chosen_.begin() + first * c.top_k, m * c.top_k, chosen.data<int32_t>());
    const Tensor hidden = Tensor::zeros(act, {m, c.top_k, c.width});
    const Tensor shared_hidden = Tensor::zeros(act, {m, c.shared_width});
    const Tensor down_in =
        Tensor::of(act, {m, c.top_k, c.width},
                   part(hidden_, first * c.top_k * c.width, m * c.top_k * c.width));
    const Tensor shared_down_in = rows(act, shared_hidden_, c.shared_width);
    const Tensor given_weight = rows(DType::kF32, weights_, c.top_k);
    const Tensor given_shared = Tensor::of(DType::kF32, {m}, part(shared_weights_, first, m));
    const Tensor partial = Tensor::zeros(DType::kF32, {m, c.hidden});
    const Tensor residual = rows(DType::kF32, residual_, c.hidden);
    run_ops(ops, [&] {
      ops.route({.x = x.view,
                 .norm = norm.view,
                 .epsilon = kEpsilon,
                 .router = router_.of(ops),
                 .shared_gate = shared_gate_.of(ops),
                 .normed = normed.view,
                 .expert = expert.view,
                 .weight = weight.view,
                 .shared_weight = shared_weight.view});
      ops.experts_up({.normed = given.view,
                      .expert = chosen.view,
                      .gate = gate_.of(ops),
                      .up = up_.of(ops),
                      .shared_gate = shared_up_gate_.of(ops),
                      .shared_up = shared_up_.of(ops),
                      .hidden = hidden.view,
                      .shared_hidden = shared_hidden.view});
      ops.experts_down_add({.hidden = down_in.view,
                            .shared_hidden = shared_down_in.view,
                            .expert = chosen.view,
                            .weight = given_weight.view,
                            .shared_weight = given_shared.view,
                            .down = down_.of(ops),
                            .shared_down = shared_down_.of(ops),
                            .partial = partial.view,
                            .residual = residual.view});
    });
    return {.normed = normed.floats(),
            .weight = weight.floats(),
            .shared_weight = shared_weight.floats(),
            .hidden = hidden.floats(),
            .shared_hidden = shared_hidden.floats(),
            .partial = partial.floats(),
            .residual = residual.floats(),
            .expert = {expert.data<int32_t>(), expert.data<int32_t>() + m * c.top_k}};
  }

  // The row's experts are the best ones, in order, as far as logits with such an error can tell,
  // and weighed by their probabilities.
  void expect_right_experts(const MoeOutputs& have, int64_t r, double logit_error) const {
    const MoeCase& c = tested();
    const float* x = x_.data() + r * c.hidden;
    const double norm = norm_of(x, c.hidden);
    const double scale = 1 / std::sqrt(norm * norm / static_cast<double>(c.hidden) + kEpsilon);
    std::vector<double> logits;
    for (int64_t e = 0; e < c.experts; ++e) {
      const Floats w = weight_row(router_.canonical, 0, e);
      double sum = 0;
      for (size_t i = 0; i < w.size(); ++i) sum += x[i] * scale * (1.0 + norm_[i]) * w[i];
      logits.push_back(sum);
    }
    const int32_t* chosen = have.expert.data() + r * c.top_k;
    std::vector<bool> taken(logits.size());
    double total = 0, last = INFINITY;
    for (int64_t slot = 0; slot < c.top_k; ++slot) {
      ASSERT_TRUE(chosen[slot] >= 0 && chosen[slot] < c.experts) << "row " << r;
      const auto e = static_cast<size_t>(chosen[slot]);
      EXPECT_FALSE(taken[e]) << "expert " << e << " twice in row " << r;
      EXPECT_LE(logits[e], last + 2 * logit_error) << "row " << r << ", slot " << slot;
      taken[e] = true;
      last = logits[e];
      total += std::exp(logits[e]);
    }
    for (size_t e = 0; e < logits.size(); ++e)
      if (!taken[e]) {
        EXPECT_LE(logits[e], last + 2 * logit_error) << "expert " << e << ", row " << r;
      }
    for (int64_t slot = 0; slot < c.top_k; ++slot) {
      const double want = std::exp(logits[static_cast<size_t>(chosen[slot])]) / total;
      EXPECT_NEAR(have.weight[static_cast<size_t>(r * c.top_k + slot)], want,
                  rounded(want, want * (2 * logit_error + 20 * kF32), DType::kF32))
          << "row " << r << ", slot " << slot;
    }
  }

  // Largest ‖row‖ of a stack.
  static double widest_row(const WeightMatrix& w) {
    double widest = 0;
    for (int64_t index = 0; index < w.count; ++index)
      for (int64_t row = 0; row < w.n; ++row)
        widest = std::max(widest, norm_of(weight_row(w, index, row).data(), w.k));
    return widest;
  }

  TestWeight router_, shared_gate_, gate_, up_, down_, shared_up_gate_, shared_up_, shared_down_;
  Floats x_, norm_, weights_, shared_weights_, hidden_, shared_hidden_, residual_;
  std::vector<int32_t> chosen_;
};

TEST_P(Moe, MatchesTheReference) {
  const MoeCase& c = tested();
  const auto reference = make_reference(), fast = make_fast(2);
  double x_norm = 0, hidden_norm = 0, shared_norm = 0, weight_sum = 0;
  for (int64_t r = 0; r < kRows; ++r) {
    x_norm = std::max(x_norm, norm_of(x_.data() + r * c.hidden, c.hidden));
    shared_norm =
        std::max(shared_norm, norm_of(shared_hidden_.data() + r * c.shared_width, c.shared_width));
    double sum = std::abs(shared_weights_[static_cast<size_t>(r)]);
    for (int64_t slot = 0; slot < c.top_k; ++slot) {
      const int64_t pair = r * c.top_k + slot;
      sum += std::abs(weights_[static_cast<size_t>(pair)]);
      hidden_norm = std::max(hidden_norm, norm_of(hidden_.data() + pair * c.width, c.width));
    }
    weight_sum = std::max(weight_sum, sum);
  }
  const double w_norm = std::max(widest_row(gate_.canonical), widest_row(up_.canonical));
  const double shared_w_norm =
      std::max(widest_row(shared_up_gate_.canonical), widest_row(shared_up_.canonical));
  // |g| and |u| are at most ‖x‖‖w‖.
  // Codes of the worst row and pair.
  double x_error = 0, hidden_error = 0, shared_error = 0;
  double shared_x_error = 0;
  for (int64_t r = 0; r < kRows; ++r) {
    const auto error = [&](WeightFormat format, const Floats& rows, int64_t row, int64_t width) {
      return given_error(target(), format, rows.data() + row * width, width);
    };
    x_error = std::max(x_error, error(c.format, x_, r, c.hidden));
    shared_x_error = std::max(shared_x_error, error(c.shared_format, x_, r, c.hidden));
    shared_error =
        std::max(shared_error, error(c.shared_format, shared_hidden_, r, c.shared_width));
    for (int64_t pair = r * c.top_k; pair < (r + 1) * c.top_k; ++pair)
      hidden_error = std::max(hidden_error, error(c.format, hidden_, pair, c.width));
  }
  const auto up_bound = [&](double w, double input) {
    const double error = dot_bound(c.hidden, x_norm, w, input);
    return gated_bound(x_norm * w, error, x_norm * w, error);
  };
  const double part = std::max(hidden_norm * widest_row(down_.canonical),
                               shared_norm * widest_row(shared_down_.canonical));
  const double down_bound =
      weight_sum * part *
      ((dot_roundings(std::max(c.width, c.shared_width)) + static_cast<double>(c.top_k) + 2) *
           kF32 +
       std::max(hidden_error, shared_error));
  // Normed rows have ‖·‖ ≤ √hidden·max(1 + w); a logit's error is a relative one of its
  // probability, and so is half the error of the shared gate's logit.
  const double logit_error =
      dot_bound(c.hidden, 1.4 * std::sqrt(static_cast<double>(c.hidden)),
                std::max(widest_row(router_.canonical), widest_row(shared_gate_.canonical)),
                norm_error(c.hidden) + (target() == Target::kCuda ? kBF16 : 0));

  const MoeOutputs want = run(*reference, 0, kRows);
  for (const int64_t m : kRowCounts) {
    const MoeOutputs have = run(*fast, 0, m);
    const std::string at = str_cat(" m=", m);
    const auto within = [](double bound, DType dtype) {
      return [=](int64_t, double value) { return rounded(value, bound, dtype); };
    };
    expect_close(
        have.normed, first(want.normed, m * c.hidden),
        [&](int64_t, double value) {
          return rounded(value, std::abs(value) * norm_error(c.hidden), DType::kBF16);
        },
        "normed" + at);
    for (int64_t r = 0; r < m; ++r) expect_right_experts(have, r, logit_error);
    expect_close(have.shared_weight, first(want.shared_weight, m),
                 within(logit_error / 4 + 8 * kF32, DType::kF32), "shared_weight" + at);
    expect_close(have.hidden, first(want.hidden, m * c.top_k * c.width),
                 within(up_bound(w_norm, x_error), DType::kBF16), "up" + at);
    expect_close(have.shared_hidden, first(want.shared_hidden, m * c.shared_width),
                 within(up_bound(shared_w_norm, shared_x_error), DType::kBF16), "shared up" + at);
    expect_close(have.partial, first(want.partial, m * c.hidden), within(down_bound, DType::kF32),
                 "down" + at);
    expect_close(have.residual, first(want.residual, m * c.hidden), within(down_bound, DType::kF32),
                 "residual" + at);
  }
}

void expect_same_rows(const MoeOutputs& have, const MoeOutputs& whole, int64_t first, int64_t m,
                      const std::string& what) {
  const auto same = [&](const Floats& a, const Floats& b) {
    const int64_t width = static_cast<int64_t>(a.size()) / m;
    expect_same_bits(a.data(), b.data() + first * width, m * width, what);
  };
  same(have.normed, whole.normed);
  same(have.weight, whole.weight);
  same(have.shared_weight, whole.shared_weight);
  same(have.hidden, whole.hidden);
  same(have.shared_hidden, whole.shared_hidden);
  same(have.partial, whole.partial);
  same(have.residual, whole.residual);
}

TEST_P(Moe, GroupingLeavesNoTrace) {
  const auto fast = make_fast();
  const MoeOutputs whole = run(*fast, 0, kRows);
  for (const int64_t m : kRowCounts)
    expect_same_rows(run(*fast, 0, m), whole, 0, m, str_cat("m=", m));
  expect_same_rows(run(*fast, 5, 1), whole, 5, 1, "row 5 alone");
  expect_same_rows(run(*fast, 7, 16), whole, 7, 16, "rows 7 to 22");
}

// Every tensor of a layer, left by the block or by its three stages in turn.
TEST_P(Moe, BlockEqualsItsStages) {
  const MoeCase& c = tested();
  const auto ops = make_fast(2);
  const MoeLayer layer{router_, shared_gate_,    gate_,      up_,
                       down_,   shared_up_gate_, shared_up_, shared_down_};
  for (const int64_t m : kRowCounts) {
    const auto run = [&](bool as_block) {
      return layer.run(*ops, part(x_, 0, m * c.hidden), norm_, part(residual_, 0, m * c.hidden),
                       c.top_k, as_block);
    };
    const MoeOutputs block = run(true), stages = run(false);
    EXPECT_EQ(block.expert, stages.expert) << "m=" << m;
    expect_same_rows(block, stages, 0, m, str_cat("m=", m));
  }
}

class MoeThreads : public Moe {};
TEST_P(MoeThreads, ChangeNoBit) {
  for (const int64_t m : {1, 17, 130}) {
    const MoeOutputs want = run(*make_fast(1), 0, m);
    for (const int threads : {2, 3})
      expect_same_rows(run(*make_fast(threads), 0, m), want, 0, m, str_cat(threads, " threads"));
  }
}

const std::vector<MoeCase> kNano = {{"bf16", kBf, kBf, 64, 48, 40, 8, 3},
                                    {"fp8", kF8, kF8, 144, 136, 40, 16, 4},
                                    {"int4", kI4, kI4, 256, 128, 256, 8, 2}};
// And slices of the real ones: widths of the inputs, expert counts, the hybrid's formats.
std::vector<MoeCase> gpu_cases() {
  std::vector<MoeCase> cases = kNano;
  cases.push_back({"hybrid_many", kI4, kF8, 128, 128, 128, 256, 8, DType::kBF16});
  cases.push_back({"hybrid_wide", kI4, kF8, 3072, 128, 256, 8, 4, DType::kBF16});
  cases.push_back({"int4_deep", kI4, kF8, 256, 1024, 1024, 8, 4, DType::kF16, true});
  // What kernels of many rows hold in registers: two and three blocks of k a warp of the up
  // products, tiles of four and eight blocks of the down products, both shared formats.
  cases.push_back({"hybrid_narrow", kI4, kF8, 2048, 512, 512, 8, 4, DType::kF16});
  cases.push_back({"hybrid_deep", kI4, kF8, 256, 1024, 1024, 40, 8, DType::kBF16});
  cases.push_back({"int4_shared", kI4, kI4, 2048, 512, 512, 8, 4, DType::kBF16});
  // What kernels of one row do besides: more tiles than blocks of threads, four blocks of k a warp,
  // fp8 that is held.
  cases.push_back({"hybrid_tiles", kI4, kF8, 3072, 640, 128, 8, 8, DType::kBF16});
  cases.push_back({"int4_four", kI4, kI4, 4096, 128, 128, 8, 4, DType::kF16});
  cases.push_back({"fp8_held", kF8, kI4, 2048, 128, 128, 8, 4, DType::kBF16});
  cases.push_back({"int4_odd", kI4, kI4, 256, 640, 896, 16, 5, DType::kBF16});
  cases.push_back({"fp8_deep", kF8, kF8, 256, 1024, 1024, 8, 4});
  cases.push_back({"bf16_wide", kBf, kBf, 2048, 112, 144, 8, 4});
  return cases;
}
const auto kName = [](const auto& tested) { return std::get<1>(tested.param).name; };
const auto kCpu = testing::Combine(testing::Values(Target::kCpu), testing::ValuesIn(kNano));
INSTANTIATE_TEST_SUITE_P(Cpu, Moe, kCpu, kName);
INSTANTIATE_TEST_SUITE_P(Cpu, MoeThreads, kCpu, kName);
INSTANTIATE_TEST_SUITE_P(Cuda, Moe,
                         testing::Combine(testing::ValuesIn(cuda_target()),
                                          testing::ValuesIn(gpu_cases())),
                         kName);

class Route : public OpTest<int64_t> {};  // top_k

// Rows 1, 2, 4 and 5 of the router are one, and x points where they do: those four win.
TEST_P(Route, TiesGoToTheLowerIndex) {
  constexpr int64_t kHidden = 128;
  const int64_t top_k = tested();
  const auto fast = make_fast();
  WeightMatrix router = random_weight({.format = WeightFormat::kBF16, .n = 6, .k = kHidden}, 1);
  const size_t bytes = kHidden * sizeof(BFloat16);
  for (const int64_t e : {4, 5, 2})
    std::memcpy(router.values[0][e].data(), router.values[0][1].data(), bytes);
  const Tensor x = Tensor::of(DType::kF32, {1, kHidden}, weight_row(router, 0, 1));
  const TestWeight stored(std::move(router), target());
  const TestWeight gate(random_weight({.format = WeightFormat::kBF16, .n = 1, .k = kHidden}, 2),
                        target());
  const Tensor norm = Tensor::zeros(DType::kF32, {kHidden});
  const Tensor normed = Tensor::zeros(fast->activation_dtype(), {1, kHidden});
  const Tensor expert = Tensor::zeros(DType::kI32, {1, top_k});
  const Tensor weight = Tensor::zeros(DType::kF32, {1, top_k}),
               shared = Tensor::zeros(DType::kF32, {1});
  fast->route({.x = x.view,
               .norm = norm.view,
               .epsilon = 1e-6f,
               .router = stored.of(*fast),
               .shared_gate = gate.of(*fast),
               .normed = normed.view,
               .expert = expert.view,
               .weight = weight.view,
               .shared_weight = shared.view});
  const int32_t winners[] = {1, 2, 4, 5};
  for (int64_t slot = 0; slot < top_k; ++slot)
    EXPECT_EQ(expert.data<int32_t>()[slot], winners[slot]) << "slot " << slot;
}
const auto kSlots = testing::Values(3, 4);
INSTANTIATE_TEST_SUITE_P(Cpu, Route, testing::Combine(testing::Values(Target::kCpu), kSlots));
INSTANTIATE_TEST_SUITE_P(Cuda, Route, testing::Combine(testing::ValuesIn(cuda_target()), kSlots));

struct ChoiceCase {
  WeightFormat format;  // of the experts
  int64_t experts, hidden, width;
};
class Choice : public OpTest<ChoiceCase> {};

// A block's one row, whose router has one input that counts, so that the logits are these: equal
// ones, next to each other and far apart, and what is no number.
TEST_P(Choice, OfABlockIsTheStages) {
  constexpr int64_t kTopK = 8;
  const auto& [format, experts, hidden, width] = tested();
  const auto ops = make_fast();
  const auto make = [&](int64_t n, int64_t k, int64_t count, uint64_t seed) {
    return TestWeight(random_weight({.format = format,
                                     .n = n,
                                     .k = k,
                                     .count = count,
                                     .scale_dtype = DType::kF16},  // those of F32 have no words
                                    seed),
                      target());
  };
  const TestWeight gate = make(width, hidden, experts, 1), up = make(width, hidden, experts, 2),
                   down = make(hidden, width, experts, 3),
                   shared_up_gate = make(width, hidden, 1, 5),
                   shared_up = make(width, hidden, 1, 6), shared_down = make(hidden, width, 1, 7);
  const TestWeight shared_gate(
      random_weight({.format = WeightFormat::kBF16, .n = 1, .k = hidden}, 4), target());
  const Floats random = random_values(experts, 8);
  const std::pair<const char*, std::function<float(int64_t)>> rows[] = {
      {"random", [&](int64_t e) { return random[static_cast<size_t>(e)]; }},
      {"rising", [](int64_t e) { return static_cast<float>(e); }},
      {"falling", [](int64_t e) { return -static_cast<float>(e); }},
      {"five", [](int64_t e) { return static_cast<float>(e * 7 % 5) - 2; }},
      {"neighbours", [](int64_t e) { return static_cast<float>(e / 3 % 4); }},
      {"equal", [](int64_t) { return 7.0f; }},
      {"three", [](int64_t e) { return e % 5 == 3 && e < 15 ? 1.0f : -INFINITY; }},
      {"one NaN", [](int64_t e) { return e == 5 ? NAN : static_cast<float>(e % 16); }},
      {"few numbers", [](int64_t e) { return e % 3 == 1 && e < 12 ? -2.0f : NAN; }},
      {"none", [](int64_t) { return NAN; }}};
  for (const auto& [name, logit] : rows) {
    WeightMatrix canonical =
        random_weight({.format = WeightFormat::kBF16, .n = experts, .k = hidden}, 9);
    for (int64_t e = 0; e < experts; ++e) {
      auto* const row = canonical.values[0][e].data_as<BFloat16>();
      std::fill_n(row, hidden, BFloat16{0});
      row[3] = to_bfloat16(logit(e));
    }
    const TestWeight router(std::move(canonical), target());
    const MoeLayer layer{router, shared_gate,    gate,      up,
                         down,   shared_up_gate, shared_up, shared_down};
    const auto run = [&](bool as_block, int64_t m) {
      return layer.run(*ops, Floats(static_cast<size_t>(m * hidden), 1.0f),
                       Floats(static_cast<size_t>(hidden)), {}, kTopK, as_block);
    };
    // Words are left as they were, whoever comes next.
    const MoeOutputs stages = run(false, 1), block = run(true, 1), two = run(true, 2),
                     again = run(true, 1);
    std::vector<int64_t> order;
    for (int64_t e = 0; e < experts; ++e)
      if (!std::isnan(logit(e))) order.push_back(e);
    std::stable_sort(order.begin(), order.end(),
                     [&](int64_t a, int64_t b) { return logit(a) > logit(b); });
    const auto numbers = static_cast<int64_t>(order.size());
    for (int64_t slot = 0; slot < kTopK; ++slot) {
      const auto at = static_cast<size_t>(slot);
      // A row that has too many NaNs gets any.
      EXPECT_EQ(block.expert[at], slot < numbers ? order[at] : slot) << name << ", slot " << slot;
    }
    EXPECT_EQ(block.expert, stages.expert) << name;
    EXPECT_EQ(block.expert, again.expert) << name;
    for (size_t i = 0; i < two.expert.size(); ++i)
      EXPECT_EQ(two.expert[i], block.expert[i % kTopK])
          << name << ", choice " << i << " of two rows";
    expect_same_bits(block.hidden, stages.hidden, name);
    expect_same_bits(block.shared_weight, stages.shared_weight, name);
    if (numbers < kTopK) {
      for (const float weight : block.weight) EXPECT_TRUE(std::isnan(weight)) << name;
      continue;
    }
    expect_same_bits(block.weight, stages.weight, name);
    expect_same_bits(block.partial, stages.partial, name);
    expect_same_bits(again.partial, stages.partial, name);
  }
}
// With and without words, heard by one lane, some and all; then by the kernels of one row.
const ChoiceCase kChoices[] = {{kBf, 8, 128, 64},   {kBf, 12, 128, 64},   {kBf, 40, 128, 64},
                               {kBf, 256, 128, 64}, {kI4, 16, 2048, 128}, {kI4, 64, 3072, 128}};
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(Choice);  // in builds without CUDA
INSTANTIATE_TEST_SUITE_P(Cuda, Choice,
                         testing::Combine(testing::ValuesIn(cuda_target()),
                                          testing::ValuesIn(kChoices)));

}  // namespace
}  // namespace pewter::test
