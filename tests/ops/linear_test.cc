// Projections and what passes rows through: every format against the reference, the row law, the
// thread law, no allocation.

#include "backend/cpu/panel.h"
#include "backend/cpu/panel_rows.h"
#include "backend/cpu/rows.h"
#include "ops/op_rig.h"
#include "ops/tolerance.h"

namespace pewter::test {
namespace {

constexpr float kEpsilon = 1e-6f;

// The stages that project, on the same rows. Outputs are floats, whatever the activation type.
struct Outputs {
  Floats normed_linear, mlp, partial, residual, logits;
};

class Linear : public OpTest<WeightSpec> {
 protected:
  static constexpr int64_t kRows = kMostRows;

  void prepare() override {
    const WeightSpec& spec = tested();
    w_ = {random_weight(spec, 1), target()};
    up_ = {random_weight(spec, 2), target()};
    // Matrices of other formats beside the first.
    other_ = {random_weight({.format = WeightFormat::kBF16, .n = 5, .k = spec.k}, 3), target()};
    third_ = {random_weight({.format = WeightFormat::kFp8Block128, .n = 18, .k = spec.k}, 7),
              target()};
    x_ = random_values(kRows * spec.k, 4);
    norm_ = random_values(spec.k, 5, 0.1f);
    residual_ = random_values(kRows * spec.n, 6);
  }

  Outputs run(Ops& ops, int64_t m) const {
    const int64_t n = tested().n, k = tested().k;
    const DType act = ops.activation_dtype();
    const Floats rows(x_.begin(), x_.begin() + m * k);
    const Tensor stream = Tensor::of(DType::kF32, {m, k}, rows), x = Tensor::of(act, {m, k}, rows);
    const Tensor norm = Tensor::of(DType::kF32, {k}, norm_);
    const Tensor normed = Tensor::zeros(act, {m, n + 23}), mlp = Tensor::zeros(act, {m, n});
    const Tensor partial = Tensor::zeros(DType::kF32, {m, n});
    const Tensor residual =
        Tensor::of(DType::kF32, {m, n}, Floats(residual_.begin(), residual_.begin() + m * n));
    const Tensor logits = Tensor::zeros(DType::kF32, {m, n});
    std::vector<int32_t> logits_rows(static_cast<size_t>(m));  // backwards
    for (int64_t r = 0; r < m; ++r)
      logits_rows[static_cast<size_t>(r)] = static_cast<int32_t>(m - 1 - r);
    const Batch batch{.rows = m, .logits_count = m, .logits_rows = logits_rows.data()};
    const WeightMatrix* const side_by_side[] = {&w_.of(ops), &other_.of(ops), &third_.of(ops)};
    run_ops(ops, [&] {
      ops.norm_linear({.x = stream.view,
                       .norm = norm.view,
                       .epsilon = kEpsilon,
                       .w = side_by_side,
                       .out = normed.view});
      if (has_mlp())
        ops.mlp_up({.x = stream.view,
                    .norm = norm.view,
                    .epsilon = kEpsilon,
                    .gate = w_.of(ops),
                    .up = up_.of(ops),
                    .out = mlp.view});
      ops.linear_add(
          {.x = x.view, .w = w_.of(ops), .partial = partial.view, .residual = residual.view});
      ops.logits({.batch = batch, .hidden = x.view, .head = w_.of(ops), .out = logits.view});
    });
    return {normed.floats(), mlp.floats(), partial.floats(), residual.floats(), logits.floats()};
  }

  // On the GPU int8 is the head's format alone.
  bool has_mlp() const {
    return target() == Target::kCpu || tested().format != WeightFormat::kInt8Row;
  }

  // Row r after its norm, in double.
  std::vector<double> normed_row(int64_t r) const {
    const float* x = x_.data() + r * tested().k;
    const double norm = norm_of(x, tested().k);
    const double scale = 1 / std::sqrt(norm * norm / static_cast<double>(tested().k) + kEpsilon);
    std::vector<double> out(static_cast<size_t>(tested().k));
    for (size_t i = 0; i < out.size(); ++i) out[i] = x[i] * scale * (1.0 + norm_[i]);
    return out;
  }

  TestWeight w_, up_, other_, third_;
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
  const int64_t n = tested().n, k = tested().k, beside = n + 23;
  const Outputs want = run(*reference, kRows);
  // Decoded once: bounds of all elements need them.
  struct Rows {
    std::vector<Floats> values;
    std::vector<double> norms;
    explicit Rows(const WeightMatrix& w) {
      for (int64_t i = 0; i < w.n; ++i) {
        values.push_back(weight_row(w, 0, i));
        norms.push_back(test::norm_of(values.back().data(), w.k));
      }
    }
  };
  const Rows w(w_.canonical), up(up_.canonical), other(other_.canonical), third(third_.canonical);
  Floats plain_bounds, normed_bounds, mlp_bounds;  // of all rows
  for (int64_t r = 0; r < kRows; ++r) {
    const float* given = x_.data() + r * k;  // bf16 already
    const double given_norm = test::norm_of(given, k),
                 error = given_error(target(), tested().format, given, k);
    const auto add = [](Floats& bounds, double bound) {
      bounds.push_back(static_cast<float>(bound * (1 + 2 * kF32)));
    };
    for (const double w_norm : w.norms) add(plain_bounds, dot_bound(k, given_norm, w_norm, error));
    const std::vector<double> x = normed_row(r);
    const double x_norm = norm_of(x);
    const auto input_error = [&](const TestWeight& matrix) {
      return norm_error(k) + form_error(target(), matrix.stored, x.data());
    };
    const double w_error = input_error(w_), other_error = input_error(other_),
                 third_error = input_error(third_);
    for (const double norm : w.norms) add(normed_bounds, dot_bound(k, x_norm, norm, w_error));
    for (const double norm : other.norms)
      add(normed_bounds, dot_bound(k, x_norm, norm, other_error));
    for (const double norm : third.norms)
      add(normed_bounds, dot_bound(k, x_norm, norm, third_error));
    for (size_t i = 0; i < w.values.size(); ++i)
      add(mlp_bounds,
          gated_bound(dot(x, w.values[i]), dot_bound(k, x_norm, w.norms[i], w_error),
                      dot(x, up.values[i]), dot_bound(k, x_norm, up.norms[i], w_error)));
  }
  for (const int64_t m : kRowCounts) {
    const Outputs have = run(*fast, m);
    const std::string at = str_cat(" m=", m);
    const auto within = [](const Floats& bounds, DType dtype) {
      return [&bounds, dtype](int64_t i, double value) {
        return rounded(value, bounds[static_cast<size_t>(i)], dtype);
      };
    };
    const auto plain = within(plain_bounds, DType::kF32);
    expect_close(have.partial, first(want.partial, m * n), plain, "linear_add" + at);
    expect_close(
        have.residual, first(want.residual, m * n),
        [&](int64_t i, double value) {
          return rounded(value, plain(i, want.partial[static_cast<size_t>(i)]), DType::kF32);
        },
        "residual" + at);
    // Logits come in the order they were asked for: backwards.
    expect_close(
        have.logits, {want.logits.end() - m * n, want.logits.end()},
        [&](int64_t i, double value) { return plain((m - 1 - i / n) * n + i % n, value); },
        "logits" + at);
    expect_close(have.normed_linear, first(want.normed_linear, m * beside),
                 within(normed_bounds, DType::kBF16), "norm_linear" + at);
    expect_close(have.mlp, first(want.mlp, m * n), within(mlp_bounds, DType::kBF16), "mlp_up" + at);
  }
}

// int4 and int8 beyond the rounding of their inputs: the codes themselves times the weights,
// exactly.
class LinearCodes : public Linear {};
TEST_P(LinearCodes, MultiplyExactly) {
  const auto fast = make_fast(2);
  const int64_t n = tested().n, k = tested().k, m = 17;
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
  Floats row(static_cast<size_t>(tested().k));
  for (int64_t i = 0; i < tested().n; ++i) {
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
    const int64_t n = tested().n;
    for (int64_t r = 0; r < m; ++r)
      expect_same_bits(have.logits.data() + r * n, whole.logits.data() + (kRows - m + r) * n, n,
                       "logits" + at);
  }
}

class LinearThreads : public Linear {};
TEST_P(LinearThreads, ChangeNoBit) {
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
// What the GPU stores: nano widths, and slices of real ones (hidden and expert widths, the widest
// input of an output projection), with outputs that fill no tile. int8 there is the head's alone.
const std::vector<WeightSpec> kGpu = {
    {.format = WeightFormat::kBF16, .n = 48, .k = 64},
    {.format = WeightFormat::kBF16, .n = 7, .k = 144},
    {.format = WeightFormat::kBF16, .n = 83, .k = 350},
    {.format = WeightFormat::kBF16, .n = 203, .k = 1024},
    {.format = WeightFormat::kBF16, .n = 41, .k = 3072},
    {.format = WeightFormat::kBF16, .n = 33, .k = 8192},
    {.format = kF8, .n = 48, .k = 40, .scale_dtype = DType::kBF16},
    {.format = kF8, .n = 130, .k = 300, .scale_dtype = DType::kF32},
    {.format = kF8, .n = 203, .k = 1024, .scale_dtype = DType::kF32},
    {.format = kF8, .n = 41, .k = 3072, .scale_dtype = DType::kBF16},
    {.format = kF8, .n = 130, .k = 8192, .scale_dtype = DType::kF32},
    {.format = kI4, .n = 41, .k = 3072, .scale_dtype = DType::kF16},
    {.format = kI4, .n = 41, .k = 3072, .scale_dtype = DType::kF16, .has_zeros = true},
    {.format = kI4, .n = 33, .k = 8192, .scale_dtype = DType::kBF16},
    {.format = kI4, .n = 19, .k = 8192, .scale_dtype = DType::kBF16, .has_zeros = true},
};
const auto on_cpu = [](const std::vector<WeightSpec>& specs) {
  return testing::Combine(testing::Values(Target::kCpu), testing::ValuesIn(specs));
};
const auto kName = [](const auto& tested) { return spec_name(std::get<1>(tested.param)); };
const std::vector<WeightSpec> kStored = joined(kWide, kCodes), kAll = joined(kPlain, kStored);
INSTANTIATE_TEST_SUITE_P(Cpu, Linear, on_cpu(kAll), kName);
INSTANTIATE_TEST_SUITE_P(Cpu, LinearThreads, on_cpu(kAll), kName);
INSTANTIATE_TEST_SUITE_P(Cpu, LinearPanels, on_cpu(kStored), kName);
INSTANTIATE_TEST_SUITE_P(Cpu, LinearCodes, on_cpu(kCodes), kName);
INSTANTIATE_TEST_SUITE_P(Cuda, Linear,
                         testing::Combine(testing::ValuesIn(cuda_target()),
                                          testing::ValuesIn(joined(kGpu, kCodes))),
                         kName);

// Rows that only pass through: norms, embeddings, the MTP entrance, sums and copies.
struct Entrances {
  Floats normed, embedded, combined, sum, copied;
};

class Entrance : public OpTest<int64_t> {  // hidden size
 protected:
  void prepare() override {
    table_ = {random_weight({.format = WeightFormat::kBF16, .n = kVocab, .k = hidden()}, 1),
              target()};
    fc_ = {random_weight({.format = WeightFormat::kBF16, .n = hidden(), .k = 2 * hidden()}, 2),
           target()};
  }
  int64_t hidden() const { return tested(); }

  Entrances run(Ops& ops, int64_t m) const {
    const DType act = ops.activation_dtype();
    const Floats rows = random_values(m * hidden(), 3);
    const Tensor stream = Tensor::of(DType::kF32, {m, hidden()}, rows);
    const Tensor given_hidden = Tensor::of(act, {m, hidden()}, rows);
    const Tensor norm = Tensor::of(DType::kF32, {hidden()}, random_values(hidden(), 4, 0.1f));
    const Tensor normed = Tensor::zeros(act, {m, hidden()});
    const Tensor embedded = Tensor::zeros(DType::kF32, {m, hidden()});
    const Tensor combined = Tensor::zeros(DType::kF32, {m, hidden()});
    const Tensor sum = Tensor::of(DType::kF32, {m, hidden()}, random_values(m * hidden(), 5));
    const Tensor copied = Tensor::zeros(act, {m, hidden()});
    std::vector<int32_t> tokens, given;
    for (int32_t r = 0; r < m; ++r) {
      tokens.push_back(r * 7 % static_cast<int32_t>(kVocab));
      given.push_back(r % 3 == 1 ? r : -1);  // some rows bring their embedding
    }
    const Batch batch{.rows = m,
                      .tokens = tokens.data(),
                      .embedding_index = given.data(),
                      .embeddings = stream.view};
    run_ops(ops, [&] {
      ops.final_norm(
          {.x = stream.view, .norm = norm.view, .epsilon = kEpsilon, .out = normed.view});
      ops.embed({.batch = batch, .table = table_.of(ops), .out = embedded.view});
      ops.mtp_combine({.embedding = stream.view,
                       .hidden = given_hidden.view,
                       .embedding_norm = norm.view,
                       .hidden_norm = norm.view,
                       .epsilon = kEpsilon,
                       .fc = fc_.of(ops),
                       .out = combined.view});
      ops.add_residual({.partial = stream.view, .residual = sum.view});
      ops.copy({.from = given_hidden.view, .to = copied.view});
    });
    return {normed.floats(), embedded.floats(), combined.floats(), sum.floats(), copied.floats()};
  }

  static constexpr int64_t kVocab = 11;
  TestWeight table_, fc_;
};

TEST_P(Entrance, MatchesTheReference) {
  const auto reference = make_reference(), fast = make_fast(2);
  const Entrances all = run(*reference, kMostRows);
  const bool halves =
      target() == Target::kCuda || panel_input_form(WeightFormat::kBF16) == InputForm::kHalves;
  for (const int64_t m : kRowCounts) {
    const Entrances have = run(*fast, m);
    const int64_t count = m * hidden();
    expect_close(
        have.normed, first(all.normed, count),
        [&](int64_t, double value) {
          return rounded(value, std::abs(value) * norm_error(hidden()), DType::kBF16);
        },
        "final_norm");
    expect_same_bits(have.embedded, first(all.embedded, count), "embed");
    // Normed rows have ‖·‖ ≤ √k · (1 + 0.4), rows of fc about 1: uniform sums stay below 0.4, and
    // 1.4 bounds ‖w‖.
    const int64_t k = 2 * hidden();
    const double bound = dot_bound(k, std::sqrt(static_cast<double>(k)) * 1.4, 1.4,
                                   norm_error(hidden()) + (halves ? kBF16 : 0));
    expect_close(
        have.combined, first(all.combined, count),
        [&](int64_t, double value) { return rounded(value, bound, DType::kF32); }, "mtp_combine");
    expect_same_bits(have.sum, first(all.sum, count), "add_residual");
    expect_same_bits(have.copied, first(all.copied, count), "copy");
  }
}

TEST_P(Entrance, RowsAndThreadsKeepTheirBits) {
  const Entrances whole = run(*make_fast(1), kMostRows);
  for (const int threads : {1, 3}) {
    const auto ops = make_fast(threads);
    for (const int64_t m : kRowCounts) {
      const Entrances have = run(*ops, m);
      expect_same_bits(have.normed.data(), whole.normed.data(), m * hidden(), "final_norm");
      expect_same_bits(have.combined.data(), whole.combined.data(), m * hidden(), "mtp_combine");
    }
  }
}

// Rows that go on from a choice, themselves or by a list of ids, beside rows that are given.
TEST_P(Entrance, EmbedsChosenTokens) {
  constexpr int64_t kRows = 7;
  const std::vector<int32_t> tokens = {4, -1, -5, 10, -3, -2, -1};
  std::vector<int32_t> choices = {3, -1, 0, 9, 2}, ids = {6, 5, 10, 0};  // -1: nothing to choose
  const std::vector<int32_t> themselves = {4, 3, 2, 10, 0, 0, 3}, listed = {4, 0, 10, 10, 6, 6, 0};
  const std::vector<int32_t> none(kRows, -1);
  const auto embed = [&](Ops& ops, const std::vector<int32_t>& of, const ChosenTokens& chosen) {
    const Tensor out = Tensor::zeros(DType::kF32, {kRows, hidden()});
    const Batch batch{.rows = kRows, .tokens = of.data(), .embedding_index = none.data()};
    run_ops(ops, [&] {
      ops.embed({.batch = batch, .table = table_.of(ops), .out = out.view, .chosen = chosen});
    });
    return out.floats();
  };
  const TensorView numbers(reinterpret_cast<std::byte*>(choices.data()), DType::kI32, {5});
  const TensorView list(reinterpret_cast<std::byte*>(ids.data()), DType::kI32, {4});
  const auto reference = make_reference(), fast = make_fast(2);
  for (Ops* const ops : {reference.get(), fast.get()}) {
    expect_same_bits(embed(*ops, tokens, {.choices = numbers}), embed(*reference, themselves, {}),
                     "choices");
    expect_same_bits(embed(*ops, tokens, {.choices = numbers, .ids = list}),
                     embed(*reference, listed, {}), "choices of a list");
  }
}

// Hidden rows that lie elsewhere, one of them for two rows.
TEST_P(Entrance, CombinesHiddenRowsWhereTheyAre) {
  constexpr int64_t kRows = 5, kHeld = 9;
  const std::vector<int32_t> rows = {7, 0, 7, 8, 2};
  const Floats values = random_values(kHeld * hidden(), 6);
  Floats gathered;
  for (const int32_t row : rows)
    gathered.insert(gathered.end(), values.begin() + row * hidden(),
                    values.begin() + (row + 1) * hidden());
  const auto combine = [&](Ops& ops, int64_t held, const Floats& hidden_values,
                           const int32_t* hidden_rows) {
    const Tensor embedding =
        Tensor::of(DType::kF32, {kRows, hidden()}, random_values(kRows * hidden(), 7));
    const Tensor norm = Tensor::of(DType::kF32, {hidden()}, random_values(hidden(), 4, 0.1f));
    const Tensor from = Tensor::of(ops.activation_dtype(), {held, hidden()}, hidden_values);
    const Tensor out = Tensor::zeros(DType::kF32, {kRows, hidden()});
    run_ops(ops, [&] {
      ops.mtp_combine({.embedding = embedding.view,
                       .hidden = from.view,
                       .hidden_rows = hidden_rows,
                       .embedding_norm = norm.view,
                       .hidden_norm = norm.view,
                       .epsilon = kEpsilon,
                       .fc = fc_.of(ops),
                       .out = out.view});
    });
    return out.floats();
  };
  const auto reference = make_reference(), fast = make_fast(2);
  for (Ops* const ops : {reference.get(), fast.get()})
    expect_same_bits(combine(*ops, kHeld, values, rows.data()),
                     combine(*ops, kRows, gathered, nullptr), "mtp_combine");
}

const auto kWidth = [](const auto& tested) { return str_cat("k", std::get<1>(tested.param)); };
INSTANTIATE_TEST_SUITE_P(Cpu, Entrance,
                         testing::Combine(testing::Values(Target::kCpu), testing::Values(200)),
                         kWidth);
INSTANTIATE_TEST_SUITE_P(Cuda, Entrance,
                         testing::Combine(testing::ValuesIn(cuda_target()),
                                          testing::Values(96, 200, 1024)),
                         kWidth);

}  // namespace
}  // namespace pewter::test
