// Every instruction set this machine can run, not only its best one: the same laws and tolerances
// hold on each.

#include <hwy/targets.h>

#include "ops/attention_rig.h"
#include "ops/delta_rig.h"
#include "ops/tolerance.h"

namespace pewter::test {
namespace {

// Kernels of one target until the end of the scope.
class UseTarget {
 public:
  explicit UseTarget(int64_t target) {
    hwy::SetSupportedTargetsForTest(target);
    hwy::GetChosenTarget().DeInit();
  }
  ~UseTarget() {
    hwy::SetSupportedTargetsForTest(0);
    hwy::GetChosenTarget().DeInit();
  }
};

class Targets : public testing::TestWithParam<int64_t> {
 protected:
  Targets() {
    hwy::SetSupportedTargetsForTest(0);
    if ((hwy::SupportedTargets() & GetParam()) == 0) skip_ = true;
  }
  bool skip_ = false;
};

Floats multiply(Ops& ops, const TestWeight& weight, const Floats& x, int64_t m) {
  const WeightMatrix& w = weight.of(ops);
  const Tensor in = Tensor::of(ops.activation_dtype(), {m, w.k}, x);
  const Tensor out = Tensor::zeros(DType::kF32, {m, w.n});
  ops.linear_add({.x = in.view, .w = w, .partial = out.view});
  return out.floats();
}

TEST_P(Targets, ProjectionsMatchAndRowsKeepTheirBits) {
  if (skip_) GTEST_SKIP() << "this machine lacks it";
  for (const WeightSpec& spec : {WeightSpec{.format = WeightFormat::kF32, .n = 9, .k = 70},
                                 WeightSpec{.format = WeightFormat::kF16, .n = 9, .k = 70},
                                 WeightSpec{.format = WeightFormat::kBF16, .n = 9, .k = 1100},
                                 WeightSpec{.format = WeightFormat::kBF16, .n = 83, .k = 1101},
                                 WeightSpec{.format = WeightFormat::kFp8Block128, .n = 9, .k = 70},
                                 WeightSpec{.format = WeightFormat::kInt4Group128,
                                            .n = 9,
                                            .k = 256,
                                            .scale_dtype = DType::kF16,
                                            .has_zeros = true}}) {
    const TestWeight w = random_weight(spec, 1);
    const Floats x = random_values(17 * spec.k, 2);
    const Floats want = multiply(*make_reference(), w, x, 17);
    const UseTarget target(GetParam());
    const auto fast = make_fast(2);
    const Floats have = multiply(*fast, w, x, 17);
    expect_close(
        have, want,
        [&](int64_t i, double value) {
          const double x_norm = norm_of(x.data() + i / spec.n * spec.k, spec.k);
          const Floats row = weight_row(w.canonical, 0, i % spec.n);
          const double input = spec.format == WeightFormat::kInt4Group128
                                   ? code_error(x.data() + i / spec.n * spec.k, spec.k)
                                   : 0;
          return rounded(value, dot_bound(spec.k, x_norm, norm_of(row.data(), spec.k), input),
                         DType::kF32);
        },
        spec_name(spec));
    for (const int64_t m : {1, 2, 3, 8})
      expect_same_bits(multiply(*fast, w, Floats(x.begin(), x.begin() + m * spec.k), m).data(),
                       have.data(), m * spec.n, spec_name(spec));
  }
}

TEST_P(Targets, MixersMatch) {
  if (skip_) GTEST_SKIP() << "this machine lacks it";
  const DeltaShape delta{"", 2, 4, 40, 24};
  const AttentionShape attention{"", 4, 2, 40, 24};
  const auto reference = make_reference();
  DeltaRig delta_want(*reference, delta);
  AttentionRig attention_want(*reference, attention, 8, 8);
  const UseTarget target(GetParam());
  const auto fast = make_fast(2);
  DeltaRig delta_have(*fast, delta);
  AttentionRig attention_have(*fast, attention, 8, 8);
  const auto close = [](double relative) {
    return [=](int64_t, double value) { return rounded(value, relative * 4, DType::kBF16); };
  };
  expect_close(delta_have.prefill({.rows = 70}), delta_want.prefill({.rows = 70}),
               close(delta_error(70, 40)), "prefill");
  expect_close(delta_have.decode({{.first = 70, .rows = 5}}),
               delta_want.decode({{.first = 70, .rows = 5}}), close(delta_error(75, 40)), "decode");
  const std::vector<AttentionRig::Part> parts = {{.context = 300, .rows = 5}};
  expect_close(attention_have.attend(Phase::kDecode, parts),
               attention_want.attend(Phase::kDecode, parts), close(attention_error(305, 40, 7)),
               "attention");
}

std::string target_name(const testing::TestParamInfo<int64_t>& tested) {
  switch (tested.param) {
    case HWY_AVX3:
      return "avx512";
    case HWY_AVX2:
      return "avx2";
    case HWY_NEON:
      return "neon";
    default:
      return "emulated";
  }
}
INSTANTIATE_TEST_SUITE_P(Simd, Targets, testing::Values(HWY_AVX3, HWY_AVX2, HWY_NEON, HWY_EMU128),
                         target_name);

}  // namespace
}  // namespace pewter::test
