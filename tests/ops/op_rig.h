// What op tests share: tensors that own their memory, seeded inputs, the Ops under test, and
// comparisons by value and by bits.
//
// A suite's cases run on a *target*, the fast CPU path or the GPU, and are instantiated as "Cpu"
// and, in builds with CUDA, as "Cuda". Without a GPU the latter are skipped.
#pragma once

#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "backend/cpu/panel_rows.h"
#include "backend/ops.h"
#include "base/rng.h"
#include "ops/tolerance.h"
#include "support/allocation_counter.h"

namespace pewter::test {

using Floats = std::vector<float>;

enum class Target : uint8_t { kCpu, kCuda };
// kCuda in builds that have it, for the instantiation of suites.
std::vector<Target> cuda_target();
// Why nothing runs on it here; empty: it does.
const std::string& why_unusable(Target target);

inline constexpr int64_t kLargeVocabulary = 248320;
// The sizes every op test of this program stays within.
OpsLimits test_limits(Target target);
std::unique_ptr<Ops> make_reference(int64_t vocabulary = 0);  // 0: as the limits have it
// Takes tensors in host memory, whatever the target. Threads are the CPU's.
std::unique_ptr<Ops> make_fast(Target target, int threads = 1);
// Whether these are the fast CPU path's.
bool is_fast_cpu(const Ops& ops);

// Runs ops, which must allocate nothing: counted here for the fast CPU path; DeviceOps sees to the
// GPU's, and the reference may.
template <typename F>
void run_ops(const Ops& ops, const F& calls) {
  if (is_fast_cpu(ops))
    run_without_allocating(calls);
  else
    calls();
}

// A suite whose cases run on a target. What needs the target is made in prepare().
template <typename Case>
class OpTest : public testing::TestWithParam<std::tuple<Target, Case>> {
 protected:
  void SetUp() override {
    if (!why_unusable(target()).empty()) GTEST_SKIP() << why_unusable(target());
    prepare();
  }
  virtual void prepare() {}

  Target target() const { return std::get<0>(this->GetParam()); }
  const Case& tested() const { return std::get<1>(this->GetParam()); }
  std::unique_ptr<Ops> make_fast(int threads = 1) const {
    return test::make_fast(target(), threads);
  }
};

// Host memory and a dense view of it. Never null; failing to allocate is a CHECK.
struct Tensor {
  Buffer memory;
  TensorView view;

  static Tensor zeros(DType dtype, std::initializer_list<int64_t> shape);
  static Tensor of(DType dtype, std::initializer_list<int64_t> shape, const Floats& values);
  Floats floats() const;  // all elements of a floating type
  template <typename T>
  T* data() const {
    return view.data_as<T>();
  }
};

// Seeded values, exact in bf16, so that both paths start from the same numbers.
Floats random_values(int64_t count, uint64_t seed, float scale = 1);
float round_to_bf16(float x);

// Weights around ±1/√k in any format, canonical.
WeightMatrix random_weight(const WeightSpec& spec, uint64_t seed);
// The same weights as the target's device stores them, in blocks of rows as a loader would.
WeightMatrix stored_weight(const WeightMatrix& canonical, Target target);

// Of integers of 14 bits with the sign: half a step of (largest of 128) / 2¹³, where int8 codes
// have 1/127.
template <typename T>
double integer_error(const T* x, int64_t k) {
  return code_error(x, k) * 127 / 8192;
}

// Relative error of inputs that are bf16 already: only codes and integers change them.
template <typename T>
double given_error(Target target, WeightFormat format, const T* x, int64_t k) {
  if (format != WeightFormat::kInt4Group128 && format != WeightFormat::kInt8Row) return 0;
  return target == Target::kCpu ? code_error(x, k) : integer_error(x, k);
}

// Relative error that a stage's inputs, floats until then, get from the form the target gives them
// for this stored matrix: none, a rounding to bf16, or int8 codes of these inputs.
template <typename T>
double form_error(Target target, const WeightMatrix& stored, const T* x) {
  if (target == Target::kCuda) return kBF16 + given_error(target, stored.format, x, stored.k);
  switch (input_form(stored)) {
    case InputForm::kHalves:
      return kBF16;
    case InputForm::kCodes:
      return code_error(x, stored.k);
    default:
      return 0;
  }
}

// A canonical matrix and its stored twin.
struct TestWeight {
  WeightMatrix canonical, stored;

  TestWeight() = default;
  TestWeight(WeightMatrix w, Target target)
      : canonical(std::move(w)), stored(stored_weight(canonical, target)) {}
  const WeightMatrix& of(const Ops& ops) const {
    return ops.activation_dtype() == DType::kBF16 ? stored : canonical;
  }
};
std::string spec_name(const WeightSpec& spec);
inline Floats first(const Floats& all, int64_t count) { return {all.begin(), all.begin() + count}; }
// Row `row` of matrix `index` decoded.
Floats weight_row(const WeightMatrix& w, int64_t index, int64_t row);
double norm_of(const float* x, int64_t n);

// Every element within bound(index, expected value) of the reference's.
void expect_close(const Floats& actual, const Floats& expected,
                  const std::function<double(int64_t, double)>& bound, const std::string& what);
// The same bits in [count] elements.
void expect_same_bits(const float* actual, const float* expected, int64_t count,
                      const std::string& what);
inline void expect_same_bits(const Floats& actual, const Floats& expected,
                             const std::string& what) {
  ASSERT_EQ(actual.size(), expected.size()) << what;
  expect_same_bits(actual.data(), expected.data(), static_cast<int64_t>(actual.size()), what);
}

// m = 1 … beyond every tile and threshold of the kernels.
inline constexpr int64_t kRowCounts[] = {1, 2, 3, 5, 8, 16, 17, 64, 130};
inline constexpr int64_t kMostRows = 130;

}  // namespace pewter::test
