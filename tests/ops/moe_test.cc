// Mixture of experts: each stage against the reference on the same inputs, the row law under every
// grouping, the thread law, no allocation.

#include "ops/op_rig.h"
#include "ops/tolerance.h"
#include "support/allocation_counter.h"

namespace pewter::test {
namespace {

struct MoeCase {
  std::string name;
  WeightFormat format;
  int64_t hidden, width, shared_width, experts, top_k;
};

struct MoeOutputs {
  Floats normed, weight, shared_weight, hidden, shared_hidden, partial, residual;
  std::vector<int32_t> expert;
};

class Moe : public testing::TestWithParam<MoeCase> {
 protected:
  static constexpr int64_t kRows = 130;
  static constexpr float kEpsilon = 1e-6f;

  Moe() {
    const MoeCase& c = GetParam();
    const auto make = [&](int64_t n, int64_t k, int64_t count, uint64_t seed) {
      return random_weight({.format = c.format, .n = n, .k = k, .count = count}, seed);
    };
    router_ = random_weight({.format = WeightFormat::kBF16, .n = c.experts, .k = c.hidden}, 1);
    shared_gate_ = random_weight({.format = WeightFormat::kBF16, .n = 1, .k = c.hidden}, 2);
    gate_ = make(c.width, c.hidden, c.experts, 3);
    up_ = make(c.width, c.hidden, c.experts, 4);
    down_ = make(c.hidden, c.width, c.experts, 5);
    shared_up_gate_ = make(c.shared_width, c.hidden, 1, 6);
    shared_up_ = make(c.shared_width, c.hidden, 1, 7);
    shared_down_ = make(c.hidden, c.shared_width, 1, 8);
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
    const MoeCase& c = GetParam();
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
    const auto all = [&] {
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
    };
    if (act == DType::kBF16)
      run_without_allocating(all);
    else
      all();
    return {.normed = normed.floats(),
            .weight = weight.floats(),
            .shared_weight = shared_weight.floats(),
            .hidden = hidden.floats(),
            .shared_hidden = shared_hidden.floats(),
            .partial = partial.floats(),
            .residual = residual.floats(),
            .expert = {expert.data<int32_t>(), expert.data<int32_t>() + m * c.top_k}};
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
  const MoeCase& c = GetParam();
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
  for (int64_t r = 0; r < kRows && c.format == WeightFormat::kInt4Group128; ++r) {
    x_error = std::max(x_error, code_error(x_.data() + r * c.hidden, c.hidden));
    shared_error = std::max(shared_error,
                            code_error(shared_hidden_.data() + r * c.shared_width, c.shared_width));
    for (int64_t pair = r * c.top_k; pair < (r + 1) * c.top_k; ++pair)
      hidden_error = std::max(hidden_error, code_error(hidden_.data() + pair * c.width, c.width));
  }
  const auto up_bound = [&](double w) {
    const double error = dot_bound(c.hidden, x_norm, w, x_error);
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
                norm_error(c.hidden));

  for (const int64_t m : kRowCounts) {
    const MoeOutputs want = run(*reference, 0, m), have = run(*fast, 0, m);
    const std::string at = str_cat(" m=", m);
    const auto within = [](double bound, DType dtype) {
      return [=](int64_t, double value) { return rounded(value, bound, dtype); };
    };
    expect_close(
        have.normed, want.normed,
        [&](int64_t, double value) {
          return rounded(value, std::abs(value) * norm_error(c.hidden), DType::kBF16);
        },
        "normed" + at);
    EXPECT_EQ(have.expert, want.expert) << at;  // no two of these probabilities are that close
    expect_close(have.weight, want.weight, within(2 * logit_error + 20 * kF32, DType::kF32),
                 "weight" + at);
    expect_close(have.shared_weight, want.shared_weight,
                 within(logit_error / 4 + 8 * kF32, DType::kF32), "shared_weight" + at);
    expect_close(have.hidden, want.hidden, within(up_bound(w_norm), DType::kBF16), "up" + at);
    expect_close(have.shared_hidden, want.shared_hidden,
                 within(up_bound(shared_w_norm), DType::kBF16), "shared up" + at);
    expect_close(have.partial, want.partial, within(down_bound, DType::kF32), "down" + at);
    expect_close(have.residual, want.residual, within(down_bound, DType::kF32), "residual" + at);
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

TEST_P(Moe, ThreadsChangeNoBit) {
  for (const int64_t m : {1, 17, 130}) {
    const MoeOutputs want = run(*make_fast(1), 0, m);
    for (const int threads : {2, 3})
      expect_same_rows(run(*make_fast(threads), 0, m), want, 0, m, str_cat(threads, " threads"));
  }
}

INSTANTIATE_TEST_SUITE_P(
    Formats, Moe,
    testing::Values(MoeCase{"bf16", WeightFormat::kBF16, 64, 48, 40, 8, 3},
                    MoeCase{"fp8", WeightFormat::kFp8Block128, 144, 136, 40, 16, 4},
                    MoeCase{"int4", WeightFormat::kInt4Group128, 256, 128, 256, 8, 2}),
    [](const auto& tested) { return tested.param.name; });

TEST(Route, TiesGoToTheLowerIndex) {
  const auto fast = make_fast();
  WeightMatrix router = random_weight({.format = WeightFormat::kF32, .n = 6, .k = 32}, 1);
  for (const int64_t e : {4, 5, 2})  // rows 2, 4 and 5 are one
    std::memcpy(router.values[0][e].data(), router.values[0][1].data(), 32 * sizeof(float));
  const WeightMatrix gate = random_weight({.format = WeightFormat::kF32, .n = 1, .k = 32}, 2);
  // The row points where experts 1, 2, 4 and 5 do, so those four win.
  const Tensor x = Tensor::zeros(DType::kF32, {1, 32}), norm = Tensor::zeros(DType::kF32, {32});
  std::memcpy(x.view.data(), router.values[0][1].data(), 32 * sizeof(float));
  const Tensor normed = Tensor::zeros(DType::kBF16, {1, 32});
  const Tensor expert = Tensor::zeros(DType::kI32, {1, 3});
  const Tensor weight = Tensor::zeros(DType::kF32, {1, 3}),
               shared = Tensor::zeros(DType::kF32, {1});
  fast->route({.x = x.view,
               .norm = norm.view,
               .epsilon = 1e-6f,
               .router = router,
               .shared_gate = gate,
               .normed = normed.view,
               .expert = expert.view,
               .weight = weight.view,
               .shared_weight = shared.view});
  const auto* chosen = expert.data<int32_t>();
  EXPECT_EQ((std::vector<int32_t>{chosen[0], chosen[1], chosen[2]}),
            (std::vector<int32_t>{1, 2, 4}));
}

}  // namespace
}  // namespace pewter::test
