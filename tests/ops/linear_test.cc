// Projections: every format against the reference, the row law, the thread law, no allocation.

#include "backend/cpu/panel.h"
#include "backend/cpu/panel_rows.h"
#include "backend/cpu/rows.h"
#include "ops/op_rig.h"
#include "ops/tolerance.h"
#include "support/allocation_counter.h"

namespace pewter::test {
namespace {

constexpr float kEpsilon = 1e-6f;

// The stages that project, on the same rows. Outputs are floats, whatever the activation type.
struct Outputs {
  Floats normed_linear, mlp, partial, residual, logits;
};

class Linear : public testing::TestWithParam<WeightSpec> {
 protected:
  static constexpr int64_t kRows = 130;

  Linear()
      : w_(random_weight(GetParam(), 1)),
        up_(random_weight(GetParam(), 2)),
        // A second matrix of another format beside the first.
        other_(random_weight({.format = WeightFormat::kBF16, .n = 5, .k = GetParam().k}, 3)),
        x_(random_values(kRows * GetParam().k, 4)),
        norm_(random_values(GetParam().k, 5, 0.1f)),
        residual_(random_values(kRows * GetParam().n, 6)) {}

  Outputs run(Ops& ops, int64_t m) const {
    const int64_t n = GetParam().n, k = GetParam().k;
    const DType act = ops.activation_dtype();
    const Floats rows(x_.begin(), x_.begin() + m * k);
    const Tensor stream = Tensor::of(DType::kF32, {m, k}, rows), x = Tensor::of(act, {m, k}, rows);
    const Tensor norm = Tensor::of(DType::kF32, {k}, norm_);
    const Tensor normed = Tensor::zeros(act, {m, n + 5}), mlp = Tensor::zeros(act, {m, n});
    const Tensor partial = Tensor::zeros(DType::kF32, {m, n});
    const Tensor residual =
        Tensor::of(DType::kF32, {m, n}, Floats(residual_.begin(), residual_.begin() + m * n));
    const Tensor logits = Tensor::zeros(DType::kF32, {m, n});
    std::vector<int32_t> logits_rows(static_cast<size_t>(m));  // backwards
    for (int64_t r = 0; r < m; ++r)
      logits_rows[static_cast<size_t>(r)] = static_cast<int32_t>(m - 1 - r);
    const Batch batch{.rows = m, .logits_count = m, .logits_rows = logits_rows.data()};
    const WeightMatrix* const both[] = {&w_.of(ops), &other_.of(ops)};
    const auto all = [&] {
      ops.norm_linear({.x = stream.view,
                       .norm = norm.view,
                       .epsilon = kEpsilon,
                       .w = both,
                       .out = normed.view});
      ops.mlp_up({.x = stream.view,
                  .norm = norm.view,
                  .epsilon = kEpsilon,
                  .gate = w_.of(ops),
                  .up = up_.of(ops),
                  .out = mlp.view});
      ops.linear_add(
          {.x = x.view, .w = w_.of(ops), .partial = partial.view, .residual = residual.view});
      ops.logits({.batch = batch, .hidden = x.view, .head = w_.of(ops), .out = logits.view});
    };
    if (act == DType::kBF16)
      run_without_allocating(all);
    else
      all();
    return {normed.floats(), mlp.floats(), partial.floats(), residual.floats(), logits.floats()};
  }

  // Row r after its norm, in double.
  std::vector<double> normed_row(int64_t r) const {
    const float* x = x_.data() + r * GetParam().k;
    const double norm = norm_of(x, GetParam().k);
    const double scale = 1 / std::sqrt(norm * norm / static_cast<double>(GetParam().k) + kEpsilon);
    std::vector<double> out(static_cast<size_t>(GetParam().k));
    for (size_t i = 0; i < out.size(); ++i) out[i] = x[i] * scale * (1.0 + norm_[i]);
    return out;
  }

  TestWeight w_, up_, other_;
  Floats x_, norm_, residual_;
};

double norm_of(const std::vector<double>& x) {
  double sum = 0;
  for (const double v : x) sum += v * v;
  return std::sqrt(sum);
}
double dot(const std::vector<double>& x, const Floats& w) {
  double sum = 0;
  for (size_t i = 0; i < w.size(); ++i) sum += x[i] * static_cast<double>(w[i]);
  return sum;
}

TEST_P(Linear, MatchesTheReference) {
  const auto reference = make_reference(), fast = make_fast(2);
  const int64_t n = GetParam().n, k = GetParam().k;
  // Inputs of linear_add and logits are bf16 already: only codes round them.
  const auto input_error = [&](const float* x) {
    return panel_input_form(GetParam().format) == InputForm::kCodes ? code_error(x, k) : 0;
  };
  const auto row_norm = [&](const WeightMatrix& w, int64_t i) {
    return test::norm_of(weight_row(w, 0, i).data(), k);
  };
  for (const int64_t m : kRowCounts) {
    const Outputs want = run(*reference, m), have = run(*fast, m);
    const std::string at = str_cat(" m=", m);
    const auto plain = [&](int64_t i, double value) {
      const double bound =
          dot_bound(k, test::norm_of(x_.data() + i / n * k, k), row_norm(w_.canonical, i % n),
                    input_error(x_.data() + i / n * k));
      return rounded(value, bound, DType::kF32);
    };
    expect_close(have.partial, want.partial, plain, "linear_add" + at);
    expect_close(
        have.residual, want.residual,
        [&](int64_t i, double value) {
          return rounded(value, plain(i, want.partial[static_cast<size_t>(i)]), DType::kF32);
        },
        "residual" + at);
    expect_close(
        have.logits, want.logits,
        [&](int64_t i, double value) { return plain((m - 1 - i / n) * n + i % n, value); },
        "logits" + at);
    expect_close(
        have.normed_linear, want.normed_linear,
        [&](int64_t i, double value) {
          const int64_t column = i % (n + 5);
          const double w_norm =
              column < n ? row_norm(w_.canonical, column) : row_norm(other_.canonical, column - n);
          const auto x = normed_row(i / (n + 5));
          const double error =
              norm_error(k) + form_error(column < n ? w_.stored : other_.stored, x.data());
          const double bound = dot_bound(k, norm_of(x), w_norm, error);
          return rounded(value, bound, DType::kBF16);
        },
        "norm_linear" + at);
    expect_close(
        have.mlp, want.mlp,
        [&](int64_t i, double value) {
          const auto x = normed_row(i / n);
          const double error = norm_error(k) + form_error(w_.stored, x.data()), x_norm = norm_of(x);
          const double bound =
              gated_bound(dot(x, weight_row(w_.canonical, 0, i % n)),
                          dot_bound(k, x_norm, row_norm(w_.canonical, i % n), error),
                          dot(x, weight_row(up_.canonical, 0, i % n)),
                          dot_bound(k, x_norm, row_norm(up_.canonical, i % n), error));
          return rounded(value, bound, DType::kBF16);
        },
        "mlp_up" + at);
  }
}

// int4 and int8 beyond the rounding of their inputs: the codes themselves times the weights,
// exactly.
class LinearCodes : public Linear {};
TEST_P(LinearCodes, MultiplyExactly) {
  const auto fast = make_fast(2);
  const int64_t n = GetParam().n, k = GetParam().k, m = 17;
  const Outputs have = run(*fast, m);
  std::vector<int8_t> codes(static_cast<size_t>(code_row_bytes(k)));
  for (int64_t r = 0; r < m; ++r) {
    Floats row(static_cast<size_t>(coded_inputs(k)));
    std::copy_n(x_.data() + r * k, k, row.data());
    code_row(row.data(), coded_inputs(k), codes.data());
    std::vector<double> x(static_cast<size_t>(k));
    for (int64_t i = 0; i < k; ++i) {
      x[static_cast<size_t>(i)] = codes[static_cast<size_t>(i)] *
                                  static_cast<double>(code_scales(codes.data(), k)[i / 128]);
      EXPECT_LE(std::abs(x[static_cast<size_t>(i)] - x_[static_cast<size_t>(r * k + i)]),
                0.5001 * code_scales(codes.data(), k)[i / 128]);
    }
    for (int64_t i = 0; i < n; ++i) {
      const Floats w = weight_row(w_.canonical, 0, i);
      // A product of two scales, and for each group a product and a sum.
      const double bound =
          static_cast<double>(k / 128 + 3) * kF32 * norm_of(x) * test::norm_of(w.data(), k);
      EXPECT_NEAR(have.partial[static_cast<size_t>(r * n + i)], dot(x, w), bound) << r << ", " << i;
    }
  }
}

TEST(CodeRow, ZerosAndWhatIsNotFinite) {
  std::vector<int8_t> codes(static_cast<size_t>(code_row_bytes(256)));
  Floats x(256, 0.0f);
  x[0] = 1e-40f;  // too small to divide by
  x[130] = INFINITY;
  code_row(x.data(), 256, codes.data());
  EXPECT_EQ(code_scales(codes.data(), 256)[0], 0.0f);
  EXPECT_EQ(code_offsets(codes.data(), 256)[0], 0);
  EXPECT_TRUE(std::isnan(code_scales(codes.data(), 256)[1]));
  x[130] = NAN;
  code_row(x.data(), 256, codes.data());
  EXPECT_TRUE(std::isnan(code_scales(codes.data(), 256)[1]));
}

class LinearPanels : public Linear {};
TEST_P(LinearPanels, DecodeToTheSame) {
  ASSERT_EQ(w_.stored.layout, kPanelLayout);
  Floats row(static_cast<size_t>(GetParam().k));
  for (int64_t i = 0; i < GetParam().n; ++i) {
    decode_panel_row(w_.stored, 0, i, row.data());
    expect_same_bits(row, weight_row(w_.canonical, 0, i), str_cat("row ", i));
  }
}

TEST_P(Linear, RowsKeepTheirBits) {
  const auto fast = make_fast();
  const Outputs whole = run(*fast, kRows);
  const auto same_rows = [](const Floats& some, const Floats& all, const std::string& what) {
    expect_same_bits(some.data(), all.data(), static_cast<int64_t>(some.size()), what);
  };
  for (const int64_t m : kRowCounts) {
    const Outputs have = run(*fast, m);
    const std::string at = str_cat(" m=", m);
    same_rows(have.normed_linear, whole.normed_linear, "norm_linear" + at);
    same_rows(have.mlp, whole.mlp, "mlp_up" + at);
    same_rows(have.partial, whole.partial, "linear_add" + at);
    same_rows(have.residual, whole.residual, "residual" + at);
    // Logits come in the order they were asked for: backwards.
    const int64_t n = GetParam().n;
    for (int64_t r = 0; r < m; ++r)
      expect_same_bits(have.logits.data() + r * n, whole.logits.data() + (kRows - m + r) * n, n,
                       "logits" + at);
  }
}

TEST_P(Linear, ThreadsChangeNoBit) {
  const auto one = make_fast(1);
  for (const int64_t m : {1, 3, 17, 130}) {
    const Outputs want = run(*one, m);
    for (const int threads : {2, 3}) {
      const Outputs have = run(*make_fast(threads), m);
      expect_same_bits(have.normed_linear, want.normed_linear, "norm_linear");
      expect_same_bits(have.mlp, want.mlp, "mlp_up");
      expect_same_bits(have.partial, want.partial, "linear_add");
      expect_same_bits(have.residual, want.residual, "residual");
      expect_same_bits(have.logits, want.logits, "logits");
    }
  }
}

// Widths below, at and above a register, a unit, a block and a tile; outputs that fill no tile.
constexpr WeightFormat kF8 = WeightFormat::kFp8Block128, kI4 = WeightFormat::kInt4Group128,
                       kI8 = WeightFormat::kInt8Row;
const std::vector<WeightSpec> kPlain = {
    {.format = WeightFormat::kF32, .n = 33, .k = 40},
    {.format = WeightFormat::kF16, .n = 18, .k = 112},
    {.format = WeightFormat::kF16, .n = 5, .k = 1031},
    {.format = WeightFormat::kBF16, .n = 7, .k = 144},
};
const std::vector<WeightSpec> kWide = {
    {.format = WeightFormat::kBF16, .n = 48, .k = 64},
    {.format = WeightFormat::kBF16, .n = 16, .k = 1031},
    {.format = WeightFormat::kBF16, .n = 83, .k = 2100},
    {.format = kF8, .n = 48, .k = 40, .scale_dtype = DType::kBF16},
    {.format = kF8, .n = 130, .k = 300, .scale_dtype = DType::kF32},
    {.format = kF8, .n = 20, .k = 1160, .scale_dtype = DType::kBF16},
};
const std::vector<WeightSpec> kCodes = {
    {.format = kI4, .n = 33, .k = 128, .scale_dtype = DType::kF16},
    {.format = kI4, .n = 20, .k = 2304, .scale_dtype = DType::kF16, .has_zeros = true},
    {.format = kI4, .n = 16, .k = 256, .scale_dtype = DType::kBF16},
    {.format = kI4, .n = 203, .k = 1024, .scale_dtype = DType::kF16},
    {.format = kI4, .n = 3, .k = 384, .scale_dtype = DType::kF32, .has_zeros = true},
    {.format = kI8, .n = 33, .k = 128},
    {.format = kI8, .n = 3, .k = 20},
    {.format = kI8, .n = 85, .k = 1031},
    {.format = kI8, .n = 203, .k = 1024},
};
std::vector<WeightSpec> joined(std::vector<WeightSpec> a, const std::vector<WeightSpec>& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}
const auto kName = [](const auto& tested) { return spec_name(tested.param); };
INSTANTIATE_TEST_SUITE_P(Formats, Linear, testing::ValuesIn(joined(kPlain, joined(kWide, kCodes))),
                         kName);
INSTANTIATE_TEST_SUITE_P(Formats, LinearPanels, testing::ValuesIn(joined(kWide, kCodes)), kName);
INSTANTIATE_TEST_SUITE_P(Formats, LinearCodes, testing::ValuesIn(kCodes), kName);

// Rows that only pass through: norms, embeddings, the MTP entrance.
struct Entrances {
  Floats normed, embedded, combined;
};
Entrances run_entrances(Ops& ops, int64_t m) {
  constexpr int64_t kHidden = 200, kVocab = 11;
  const DType act = ops.activation_dtype();
  const TestWeight table =
      random_weight({.format = WeightFormat::kBF16, .n = kVocab, .k = kHidden}, 1);
  const TestWeight fc =
      random_weight({.format = WeightFormat::kBF16, .n = kHidden, .k = 2 * kHidden}, 2);
  const Floats rows = random_values(m * kHidden, 3);
  const Tensor stream = Tensor::of(DType::kF32, {m, kHidden}, rows);
  const Tensor hidden = Tensor::of(act, {m, kHidden}, rows);
  const Tensor norm = Tensor::of(DType::kF32, {kHidden}, random_values(kHidden, 4, 0.1f));
  const Tensor normed = Tensor::zeros(act, {m, kHidden});
  const Tensor embedded = Tensor::zeros(DType::kF32, {m, kHidden});
  const Tensor combined = Tensor::zeros(DType::kF32, {m, kHidden});
  std::vector<int32_t> tokens, given;
  for (int32_t r = 0; r < m; ++r) {
    tokens.push_back(r * 7 % static_cast<int32_t>(kVocab));
    given.push_back(r % 3 == 1 ? r : -1);  // some rows bring their embedding
  }
  const Batch batch{.rows = m,
                    .tokens = tokens.data(),
                    .embedding_index = given.data(),
                    .embeddings = stream.view};
  const auto all = [&] {
    ops.final_norm({.x = stream.view, .norm = norm.view, .epsilon = kEpsilon, .out = normed.view});
    ops.embed({.batch = batch, .table = table.of(ops), .out = embedded.view});
    ops.mtp_combine({.embedding = stream.view,
                     .hidden = hidden.view,
                     .embedding_norm = norm.view,
                     .hidden_norm = norm.view,
                     .epsilon = kEpsilon,
                     .fc = fc.of(ops),
                     .out = combined.view});
  };
  if (act == DType::kBF16)
    run_without_allocating(all);
  else
    all();
  return {normed.floats(), embedded.floats(), combined.floats()};
}

TEST(Entrance, MatchesTheReference) {
  for (const int64_t m : kRowCounts) {
    const Entrances want = run_entrances(*make_reference(), m),
                    have = run_entrances(*make_fast(2), m);
    expect_close(
        have.normed, want.normed,
        [](int64_t, double value) {
          return rounded(value, std::abs(value) * norm_error(200), DType::kBF16);
        },
        "final_norm");
    expect_same_bits(have.embedded, want.embedded, "embed");
    // Normed rows have ‖·‖ ≤ √400 · (1 + 0.4), rows of fc about 1: uniform sums stay below 0.4, and
    // 1.4 bounds ‖w‖.
    const double halves = panel_input_form(WeightFormat::kBF16) == InputForm::kHalves ? kBF16 : 0;
    expect_close(
        have.combined, want.combined,
        [&](int64_t, double value) {
          return rounded(value, dot_bound(400, 20 * 1.4, 1.4, norm_error(200) + halves),
                         DType::kF32);
        },
        "mtp_combine");
  }
}

TEST(Entrance, RowsAndThreadsKeepTheirBits) {
  const Entrances whole = run_entrances(*make_fast(1), 130);
  for (const int64_t m : kRowCounts)
    for (const int threads : {1, 3}) {
      const Entrances have = run_entrances(*make_fast(threads), m);
      expect_same_bits(have.normed.data(), whole.normed.data(), m * 200, "final_norm");
      expect_same_bits(have.combined.data(), whole.combined.data(), m * 200, "mtp_combine");
    }
}

}  // namespace
}  // namespace pewter::test
