// Every instruction set this machine can run, not only its best one: the same laws and tolerances
// hold on each.

#include <hwy/targets.h>

#include "backend/cpu/features.h"
#include "ops/attention_rig.h"
#include "ops/delta_rig.h"
#include "ops/tolerance.h"

namespace pewter::test {
namespace {

// A machine: the vectors it has and what it multiplies beyond them.
struct Machine {
  std::string name;
  int64_t target;
  CpuFeatures features;
};

// Kernels of one machine until the end of the scope.
class UseMachine {
 public:
  explicit UseMachine(const Machine& machine) {
    hwy::SetSupportedTargetsForTest(machine.target);
    hwy::GetChosenTarget().DeInit();
    set_cpu_features_for_test(machine.features);
  }
  ~UseMachine() {
    hwy::SetSupportedTargetsForTest(0);
    hwy::GetChosenTarget().DeInit();
    set_cpu_features_for_test(usual_);
  }

 private:
  const CpuFeatures usual_ = cpu_features();
};

class Targets : public testing::TestWithParam<Machine> {
 protected:
  Targets() {
    hwy::SetSupportedTargetsForTest(0);
    const CpuFeatures have = detect_cpu_features(), want = GetParam().features;
    const auto lacks = [](bool wanted, bool had) { return wanted && !had; };
    skip_ = (hwy::SupportedTargets() & GetParam().target) == 0 ||
            lacks(want.avx512_vnni, have.avx512_vnni) || lacks(want.amx_int8, have.amx_int8) ||
            lacks(want.avx512_bf16, have.avx512_bf16) ||
            lacks(want.neon_dotprod, have.neon_dotprod) || lacks(want.neon_i8mm, have.neon_i8mm) ||
            lacks(want.neon_bf16, have.neon_bf16);
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
                                 WeightSpec{.format = WeightFormat::kInt8Row, .n = 41, .k = 300},
                                 WeightSpec{.format = WeightFormat::kInt4Group128,
                                            .n = 9,
                                            .k = 256,
                                            .scale_dtype = DType::kF16,
                                            .has_zeros = true}}) {
    const TestWeight w(random_weight(spec, 1), Target::kCpu);
    const Floats x = random_values(17 * spec.k, 2);
    const Floats want = multiply(*make_reference(), w, x, 17);
    const UseMachine machine(GetParam());
    const auto fast = make_fast(Target::kCpu, 2);
    const Floats have = multiply(*fast, w, x, 17);
    expect_close(
        have, want,
        [&](int64_t i, double value) {
          const double x_norm = norm_of(x.data() + i / spec.n * spec.k, spec.k);
          const Floats row = weight_row(w.canonical, 0, i % spec.n);
          const double input = panel_input_form(spec.format) == InputForm::kCodes
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
  const UseMachine machine(GetParam());
  const auto fast = make_fast(Target::kCpu, 2);
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

// Integer products are exact and groups add in order, so wherever multiply-adds round once results
// of codes are the same bits.
TEST_P(Targets, CodesGiveTheSameBits) {
  if (skip_) GTEST_SKIP() << "this machine lacks it";
  if (GetParam().target == HWY_EMU128) GTEST_SKIP() << "its multiply-add rounds twice";
  const WeightSpec int4{
      .format = WeightFormat::kInt4Group128, .n = 150, .k = 384, .scale_dtype = DType::kF16};
  WeightSpec zeros = int4, int8 = int4;
  zeros.has_zeros = true;
  int8.format = WeightFormat::kInt8Row;
  for (const WeightSpec& spec : {int4, zeros, int8}) {
    const TestWeight w(random_weight(spec, 5), Target::kCpu);
    const Floats x = random_values(29 * 384, 6);
    const Floats want = multiply(*make_fast(Target::kCpu, 2), w, x, 29);
    const UseMachine machine(GetParam());
    expect_same_bits(multiply(*make_fast(Target::kCpu, 2), w, x, 29), want, spec_name(spec));
  }
}

const Machine kMachines[] = {
    {"avx512", HWY_AVX3, {}},
    {"avx512_vnni", HWY_AVX3, {.avx512_vnni = true}},
    {"avx512_bf16", HWY_AVX3, {.avx512_vnni = true, .avx512_bf16 = true}},
    {"avx512_amx", HWY_AVX3, {.avx512_vnni = true, .amx_int8 = true}},
    {"avx2", HWY_AVX2, {}},
    {"neon", HWY_NEON, {}},
    {"neon_dotprod", HWY_NEON, {.neon_dotprod = true}},
    {"neon_i8mm", HWY_NEON, {.neon_dotprod = true, .neon_i8mm = true}},
    {"neon_bf16", HWY_NEON, {.neon_dotprod = true, .neon_bf16 = true}},
    {"emulated", HWY_EMU128, {}},
};
INSTANTIATE_TEST_SUITE_P(Simd, Targets, testing::ValuesIn(kMachines),
                         [](const auto& tested) { return tested.param.name; });

}  // namespace
}  // namespace pewter::test
