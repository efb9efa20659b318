// The sample op against the host's: for the same logits the same tokens, draws included, and the
// same log-probabilities; a row keeps its bits among others.

#include "ops/op_rig.h"
#include "ops/tolerance.h"

namespace pewter::test {
namespace {

struct SampleCase {
  std::string name;
  SamplingRow parameters;
  int64_t vocab = 1100;
  bool edits = false, masks = false, all_alike = true;  // alike: otherwise rows differ in all
};

struct Choices {
  std::vector<int32_t> token, top_token;
  Floats logprob, top_logprob;
};

class Sample : public OpTest<SampleCase> {
 protected:
  static constexpr int64_t kRows = 24;

  void prepare() override {
    const SampleCase& c = tested();
    // Values of eight bits: many are equal, and ties go to the lower id.
    logits_ = random_values(kRows * c.vocab, 1, 2);
    for (int64_t r = 0; r < kRows; ++r) {
      SamplingRow row = c.parameters;
      row.seed = 7 + static_cast<uint64_t>(r / 4);
      row.index = static_cast<uint64_t>(r % 4);
      row.top_logprobs = static_cast<int32_t>(r % (kTopLogprobs + 1));
      if (!c.all_alike) {
        const auto draw = [&](uint64_t index) {
          return random_uniform(3, static_cast<uint64_t>(r) * 8 + index);
        };
        row.temperature = r % 5 == 0 ? 0 : 0.2f + draw(0);
        row.top_p = r % 3 == 0 ? 1 : 0.3f + 0.7f * draw(1);
        row.top_k = r % 4 == 0 ? 0 : 1 + static_cast<int32_t>(draw(2) * 50);
        row.min_p = r % 7 == 0 ? 0.2f * draw(3) : 0;
        row.repetition_penalty = 1 + 0.5f * draw(4);
        row.presence_penalty = draw(5) - 0.5f;
        row.frequency_penalty = draw(6) - 0.5f;
      }
      rows_.push_back(row);
      edit_begin_.push_back(static_cast<int32_t>(edits_.size()));
      for (int64_t i = 0; c.edits && i < std::min(5 * r, c.vocab); ++i)
        edits_.push_back({.token = static_cast<int32_t>((i * 41 + r) % c.vocab),
                          .output_count = static_cast<int32_t>(i % 3),
                          .bias = i % 11 == 0 ? -INFINITY : static_cast<float>(i % 4) - 1,
                          .seen = i % 2 == 0});
      for (int64_t word = 0; c.masks && word < (c.vocab + 31) / 32; ++word)  // one row allows none
        masks_.push_back(r == 5 ? 0
                                : static_cast<uint32_t>(random_bits(static_cast<uint64_t>(r),
                                                                    static_cast<uint64_t>(word))));
    }
    edit_begin_.push_back(static_cast<int32_t>(edits_.size()));
    logits_[static_cast<size_t>(9 * c.vocab + c.vocab / 2)] = NAN;  // of row 9
    logits_[static_cast<size_t>(11 * c.vocab + 1)] = -INFINITY;
  }

  // Rows first … first + count − 1.
  Choices run(Ops& ops, int64_t first, int64_t count) const {
    const SampleCase& c = tested();
    const Tensor logits = Tensor::of(
        DType::kF32, {count, c.vocab},
        {logits_.begin() + first * c.vocab, logits_.begin() + (first + count) * c.vocab});
    const Tensor token = Tensor::zeros(DType::kI32, {count}),
                 logprob = Tensor::zeros(DType::kF32, {count});
    const Tensor top_token = Tensor::zeros(DType::kI32, {count, kTopLogprobs}),
                 top_logprob = Tensor::zeros(DType::kF32, {count, kTopLogprobs});
    const int32_t begin = edit_begin_[static_cast<size_t>(first)];
    std::vector<int32_t> edit_begin;
    for (int64_t r = first; r <= first + count; ++r)
      edit_begin.push_back(edit_begin_[static_cast<size_t>(r)] - begin);
    run_ops(ops, [&] {
      ops.sample({.logits = logits.view,
                  .vocab_limit = c.vocab - 3,
                  .rows = rows_.data() + first,
                  .edits = edits_.data() + begin,
                  .edit_begin = edit_begin.data(),
                  .masks = masks_.empty() ? nullptr : masks_.data() + first * ((c.vocab + 31) / 32),
                  .token = token.view,
                  .logprob = logprob.view,
                  .top_token = top_token.view,
                  .top_logprob = top_logprob.view});
    });
    const auto ids = [](const Tensor& t) {
      return std::vector<int32_t>(t.data<int32_t>(), t.data<int32_t>() + t.view.elements());
    };
    return {.token = ids(token),
            .top_token = ids(top_token),
            .logprob = logprob.floats(),
            .top_logprob = top_logprob.floats()};
  }

  Floats logits_;
  std::vector<SamplingRow> rows_;
  std::vector<LogitEdit> edits_;
  std::vector<int32_t> edit_begin_;
  std::vector<uint32_t> masks_;
};

TEST_P(Sample, MatchesTheHost) {
  const Choices want = run(*make_reference(tested().vocab), 0, kRows),
                have = run(*make_fast(), 0, kRows);
  // A sum of `vocab` exponentials in f32 or wider, relative to itself, and the rounding of the
  // result: logits lie within ±10, their log-sum within 20.
  const double bound = 8 * kF32 + 20 * 2 * kF32;
  EXPECT_EQ(have.token, want.token);
  EXPECT_EQ(have.token[9], -1);
  for (int64_t r = 0; r < kRows; ++r) {
    const auto at = static_cast<size_t>(r);
    if (have.token[at] < 0)
      EXPECT_TRUE(std::isnan(have.logprob[at])) << "row " << r;
    else
      EXPECT_NEAR(have.logprob[at], want.logprob[at], bound) << "row " << r;
    const bool is_finite = r != 9 && r != 11;
    for (int64_t i = 0; i < (is_finite ? rows_[at].top_logprobs : kTopLogprobs); ++i) {
      const auto place = static_cast<size_t>(r * kTopLogprobs + i);
      EXPECT_EQ(have.top_token[place], want.top_token[place]) << "row " << r << ", place " << i;
      if (is_finite)
        EXPECT_NEAR(have.top_logprob[place], want.top_logprob[place], bound)
            << "row " << r << ", place " << i;
      else
        EXPECT_EQ(have.top_logprob[place], -INFINITY) << "row " << r << ", place " << i;
    }
  }
}

TEST_P(Sample, RowsKeepTheirBits) {
  const auto ops = make_fast();
  const Choices whole = run(*ops, 0, kRows);
  for (const int64_t count : {1, 2, 3, 5, 8, 16})
    for (const int64_t first : {int64_t{0}, kRows - count}) {
      const Choices some = run(*ops, first, count);
      const std::string what = str_cat(count, " rows from ", first);
      for (int64_t i = 0; i < count; ++i)
        EXPECT_EQ(some.token[static_cast<size_t>(i)], whole.token[static_cast<size_t>(first + i)])
            << what;
      expect_same_bits(some.logprob.data(), whole.logprob.data() + first, count, what);
      for (int64_t r = first; r < first + count; ++r)
        expect_same_bits(some.top_logprob.data() + (r - first) * kTopLogprobs,
                         whole.top_logprob.data() + r * kTopLogprobs,
                         rows_[static_cast<size_t>(r)].top_logprobs, what);
    }
}

const std::vector<SampleCase> kCases = {
    {"greedy", {}},
    {"greedy_penalties",
     {.repetition_penalty = 1.3f, .presence_penalty = 0.5f, .frequency_penalty = 0.25f},
     1100,
     true},
    {"plain", {.temperature = 1}},
    {"hot_masked", {.temperature = 1.7f}, 1100, false, true},
    {"top_k", {.temperature = 0.8f, .top_k = 7}},
    {"top_p", {.temperature = 0.9f, .top_p = 0.6f}},
    {"top_k_and_p", {.temperature = 1, .top_p = 0.9f, .top_k = 20}},
    {"min_p", {.temperature = 1, .min_p = 0.1f}},
    {"mixed", {}, 1100, true, true, false},
};
std::vector<SampleCase> gpu_cases() {
  std::vector<SampleCase> cases = kCases;
  cases.push_back({"odd_vocabulary", {.temperature = 1}, 37, true, true, false});
  cases.push_back({"whole_vocabulary", {.temperature = 1}, kLargeVocabulary, true, false, false});
  cases.push_back({"whole_vocabulary_plain", {.temperature = 1}, kLargeVocabulary});
  return cases;
}
const auto kName = [](const auto& tested) { return std::get<1>(tested.param).name; };
INSTANTIATE_TEST_SUITE_P(Cpu, Sample,
                         testing::Combine(testing::Values(Target::kCpu), testing::ValuesIn(kCases)),
                         kName);
INSTANTIATE_TEST_SUITE_P(Cuda, Sample,
                         testing::Combine(testing::ValuesIn(cuda_target()),
                                          testing::ValuesIn(gpu_cases())),
                         kName);

}  // namespace
}  // namespace pewter::test
