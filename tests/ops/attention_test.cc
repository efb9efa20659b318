// Attention over the paged cache: preparation and scores against the reference and against double
// precision at the far end of the context, the row law, the thread law (which also compares cutting
// a context between threads with walking it).

#include "ops/attention_rig.h"
#include "ops/tolerance.h"

namespace pewter::test {
namespace {

class Attention : public OpTest<AttentionShape> {
 protected:
  const AttentionShape& shape() const { return tested(); }
  int64_t width() const { return shape().q_width(); }

  // Values are at most 3.5 (the generator's limit) and a score at most ‖q‖‖k‖/√d ≈ 4·√d, with the
  // last page's large keys.
  double bound(int64_t context) const {
    const auto d = static_cast<double>(shape().head_dim);
    return attention_error(context, shape().head_dim, 4 * std::sqrt(d)) * 3.5;
  }
  void expect_close_outputs(const Floats& have, const Floats& want, int64_t context,
                            const std::string& what) const {
    expect_close(
        have, want,
        [&](int64_t, double value) { return rounded(value, bound(context), DType::kBF16); }, what);
  }
};

TEST_P(Attention, MatchesTheReference) {
  const auto reference = make_reference(), fast = make_fast(2);
  AttentionRig want(*reference, shape(), 16, 16), have(*fast, shape(), 16, 16);
  for (const int64_t context : {0, 5, 63, 64, 255, 256, 700})
    for (const int64_t rows : {1, 2, 3, 5, 8, 16}) {
      const std::vector<AttentionRig::Part> parts = {{.context = context, .rows = rows}};
      expect_close_outputs(have.attend(Phase::kDecode, parts), want.attend(Phase::kDecode, parts),
                           context + rows, str_cat(rows, " rows behind ", context));
    }
  for (const int64_t rows : kRowCounts) {
    const std::vector<AttentionRig::Part> parts = {{.context = 128, .rows = rows}};
    expect_close_outputs(have.attend(Phase::kPrefill, parts), want.attend(Phase::kPrefill, parts),
                         128 + rows, str_cat("prefill of ", rows));
  }
}

TEST_P(Attention, WindowsMatchTheReference) {
  const auto reference = make_reference(), fast = make_fast(2);
  AttentionRig want(*reference, shape(), 16, 16), have(*fast, shape(), 16, 16);
  const std::vector<AttentionRig::Part> parts = {{.context = 700, .rows = 3},
                                                 {.context = 90, .first = 20, .rows = 5}};
  for (const int64_t window : {1, 100, 128, 1000})
    expect_close_outputs(have.attend(Phase::kDecode, parts, window),
                         want.attend(Phase::kDecode, parts, window), 703,
                         str_cat("window of ", window));
}

// Sequences of very different lengths in one step.
TEST_P(Attention, LongContextsMatchTheReference) {
  const auto reference = make_reference(), fast = make_fast(2);
  AttentionRig want(*reference, shape(), 16, 64), have(*fast, shape(), 16, 64);
  const std::vector<AttentionRig::Part> parts = {{.context = 1023, .rows = 2},
                                                 {.context = 4000, .first = 20, .rows = 5},
                                                 {.context = 0, .first = 40},
                                                 {.context = 2047, .first = 60, .rows = 16}};
  expect_close_outputs(have.attend(Phase::kDecode, parts), want.attend(Phase::kDecode, parts), 4005,
                       "output");
}

TEST_P(Attention, PrepareMatchesTheReference) {
  const auto reference = make_reference(), fast = make_fast(2);
  // As many pages as the step needs: rows that share a place would overwrite each other in any
  // order.
  AttentionRig want(*reference, shape(), 16, 16), have(*fast, shape(), 16, 16);
  // A rotated element mixes two normed ones: sizes up to √2 · 3.5 · 1.4 · (its norm's scale ≈ 1).
  // Reading angle and sine from f32 costs the reference an ulp of each.
  const auto bound = [&](int64_t, double value) {
    return rounded(value, 7 * (norm_error(shape().head_dim) + 4 * kF32), DType::kBF16);
  };
  for (const int64_t rows : {1, 3, 17, 130}) {
    const std::vector<AttentionRig::Part> parts = {
        {.context = 200, .rows = rows, .position_delta = 100000}, {.context = 30, .first = 7}};
    expect_close(have.prepare(Phase::kPrefill, parts), want.prepare(Phase::kPrefill, parts), bound,
                 "q");
    for (int64_t head = 0; head < shape().kv_heads; ++head)
      for (int64_t position = 190; position < 200 + rows + 5; ++position) {
        // Both keys were rounded to the cache's bf16, perhaps to different sides.
        expect_close(
            have.key(position, head), want.key(position, head),
            [&](int64_t i, double value) { return 2 * bound(i, value); }, "key");
        expect_same_bits(have.value(position, head), want.value(position, head), "value");
      }
  }
}

// Angles keep the f32 product's precision where a careless reduction would lose it all.
TEST_P(Attention, RotatesRightlyAtTheEndOfTheContext) {
  const auto fast = make_fast();
  AttentionRig rig(*fast, shape(), 2, 2);
  constexpr int64_t kLast = 262143;
  const Floats q = rig.prepare(Phase::kDecode, {{.context = 0, .position_delta = kLast}});
  const int64_t d = shape().head_dim, half = shape().rotary_dim / 2;
  std::vector<double> normed(static_cast<size_t>(d)), want(normed);
  for (int64_t head = 0; head < shape().query_heads; ++head) {
    const float* x = rig.in(0) + head * 2 * d;
    const double scale = 1 / std::sqrt(std::pow(norm_of(x, d), 2) / static_cast<double>(d) + 1e-6);
    for (int64_t i = 0; i < d; ++i)
      normed[static_cast<size_t>(i)] = x[i] * scale * (1.0 + rig.q_norm()[static_cast<size_t>(i)]);
    want = normed;
    for (int64_t i = 0; i < half; ++i) {
      const auto a = static_cast<size_t>(i), b = static_cast<size_t>(i + half);
      // The angle is an f32 product by definition; its sine is not approximated.
      const double angle = static_cast<float>(kLast + i % 3) * rig.frequency()[a];
      want[a] = normed[a] * std::cos(angle) - normed[b] * std::sin(angle);
      want[b] = normed[b] * std::cos(angle) + normed[a] * std::sin(angle);
    }
    expect_close(
        Floats(q.begin() + head * d, q.begin() + (head + 1) * d), Floats(want.begin(), want.end()),
        [&](int64_t, double value) {
          return rounded(value, 7 * (norm_error(d) + 4 * kF32), DType::kBF16);
        },
        "q");
  }
}

// The whole context of 262,144 positions, on a few physical pages that repeat, against double
// precision.
TEST_P(Attention, IsRightOverTheWholeContext) {
  constexpr int64_t kContext = 262143, kPages = 262144 / kPageTokens;
  const auto fast = make_fast(2);
  AttentionRig rig(*fast, shape(), 6, kPages);
  const Floats have = rig.attend(Phase::kDecode, {{.context = kContext, .first = 3}});
  const int64_t d = shape().head_dim, group = shape().query_heads / shape().kv_heads;
  for (const int64_t head : {int64_t{0}, shape().query_heads - 1}) {
    double total = 0;
    std::vector<double> sums(static_cast<size_t>(d));
    const auto add_page = [&](int64_t page, int64_t times) {
      for (int64_t offset = 0; offset < kPageTokens; ++offset) {
        const Floats k = rig.key(page * kPageTokens + offset, head / group);
        const Floats v = rig.value(page * kPageTokens + offset, head / group);
        double score = 0;
        for (int64_t i = 0; i < d; ++i)
          score += static_cast<double>(rig.q(3)[head * d + i]) * k[static_cast<size_t>(i)];
        const double weight =
            static_cast<double>(times) * std::exp(score / std::sqrt(static_cast<double>(d)));
        total += weight;
        for (size_t i = 0; i < sums.size(); ++i) sums[i] += weight * v[i];
      }
    };
    // Logical pages repeat five physical ones, up to the last, which stands alone: weigh each once.
    for (int64_t page = 0; page < 5; ++page) add_page(page, (kPages - 1 - page + 4) / 5);
    add_page(kPages - 1, 1);
    Floats want;
    for (int64_t i = 0; i < d; ++i) {
      const double gate = rig.in(3)[head * 2 * d + d + i];
      want.push_back(
          static_cast<float>(sums[static_cast<size_t>(i)] / total / (1 + std::exp(-gate))));
    }
    expect_close_outputs(Floats(have.begin() + head * d, have.begin() + (head + 1) * d), want,
                         kContext + 1, "output");
  }
}

TEST_P(Attention, RowsKeepTheirBits) {
  const auto ops = make_fast();
  AttentionRig rig(*ops, shape(), 16, 16);
  for (const int64_t context : {0, 60, 250, 600}) {
    Floats alone;
    for (int64_t row = 0; row < 16; ++row) {
      const Floats one = rig.attend(Phase::kDecode, {{.context = context + row, .first = row}});
      alone.insert(alone.end(), one.begin(), one.end());
    }
    for (const int64_t rows : {2, 3, 5, 8, 16}) {
      // Among other sequences.
      const Floats have = rig.attend(Phase::kDecode, {{.context = 300, .first = 40, .rows = 5},
                                                      {.context = context, .rows = rows},
                                                      {.context = 1, .first = 90}});
      expect_same_bits(have.data() + 5 * width(), alone.data(), rows * width(),
                       str_cat(rows, " rows behind ", context));
    }
  }
}

// Behind contexts so long that a step's rows stand on both sides of a border between stretches.
TEST_P(Attention, RowsKeepTheirBitsBehindLongContexts) {
  const auto ops = make_fast();
  AttentionRig rig(*ops, shape(), 16, 65);
  for (const int64_t context : {1015, 4090}) {
    Floats alone;
    for (int64_t row = 0; row < 16; ++row) {
      const Floats one = rig.attend(Phase::kDecode, {{.context = context + row, .first = row}});
      alone.insert(alone.end(), one.begin(), one.end());
    }
    for (const int64_t rows : {3, 16}) {
      const Floats have = rig.attend(
          Phase::kDecode, {{.context = 2500, .first = 40}, {.context = context, .rows = rows}});
      expect_same_bits(have.data() + width(), alone.data(), rows * width(),
                       str_cat(rows, " rows behind ", context));
    }
  }
}

// More sequences than a warp has lanes.
TEST_P(Attention, ManySequencesMatchTheReference) {
  const auto reference = make_reference(), fast = make_fast(2);
  AttentionRig want(*reference, shape(), 16, 16), have(*fast, shape(), 16, 16);
  std::vector<AttentionRig::Part> parts;
  for (int64_t i = 0; i < 70; ++i)
    parts.push_back({.context = i * 37 % 300, .first = i, .rows = 1 + i % 2});
  parts.push_back({.context = 900, .first = 100, .rows = 3});
  expect_close_outputs(have.attend(Phase::kDecode, parts), want.attend(Phase::kDecode, parts), 903,
                       "output");
}

class AttentionThreads : public Attention {};
TEST_P(AttentionThreads, ChangeNoBit) {
  for (const std::vector<AttentionRig::Part>& parts :
       {std::vector<AttentionRig::Part>{{.context = 1000}},
        {{.context = 4000, .rows = 16}},
        {{.context = 10, .rows = 3}, {.context = 2000, .first = 9, .rows = 2}}}) {
    const auto one = make_fast(1);
    AttentionRig rig(*one, shape(), 16, 64);
    const Floats want = rig.attend(Phase::kDecode, parts);
    for (const int threads : {2, 3, 8}) {
      const auto ops = make_fast(threads);
      AttentionRig other(*ops, shape(), 16, 64);
      expect_same_bits(other.attend(Phase::kDecode, parts), want, str_cat(threads, " threads"));
    }
  }
}

const std::vector<AttentionShape> kCpuShapes = {
    {"tiny", 4, 2, 32, 8}, {"odd", 3, 1, 40, 24}, {"real", 16, 2, 256, 64}};
// Four to sixteen query heads a KV head; "tiny" and "nano" are the nano models'.
const std::vector<AttentionShape> kCudaShapes = {
    {"tiny", 4, 2, 32, 8},         {"odd", 3, 1, 40, 24},        {"nano", 6, 1, 64, 16},
    {"real_by_4", 8, 2, 256, 64},  {"real_by_6", 6, 1, 256, 64}, {"real_by_8", 16, 2, 256, 64},
    {"real_by_16", 32, 2, 256, 64}};
const auto kName = [](const auto& tested) { return std::get<1>(tested.param).name; };
const auto kCpu = testing::Combine(testing::Values(Target::kCpu), testing::ValuesIn(kCpuShapes));
INSTANTIATE_TEST_SUITE_P(Cpu, Attention, kCpu, kName);
INSTANTIATE_TEST_SUITE_P(Cpu, AttentionThreads, kCpu, kName);
INSTANTIATE_TEST_SUITE_P(Cuda, Attention,
                         testing::Combine(testing::ValuesIn(cuda_target()),
                                          testing::ValuesIn(kCudaShapes)),
                         kName);

}  // namespace
}  // namespace pewter::test
