// What op tests share: tensors that own their memory, seeded inputs, the Ops under test, and
// comparisons by value and by bits.
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

namespace pewter::test {

using Floats = std::vector<float>;

// The sizes every op test of this program stays within.
OpsLimits test_limits();
std::unique_ptr<Ops> make_reference();
std::unique_ptr<Ops> make_fast(int threads = 1);

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
// The same weights as the fast path's device stores them, in blocks of rows as a loader would.
WeightMatrix stored_weight(const WeightMatrix& canonical);

// Relative error that a stage's inputs, floats until then, get from the form the fast path gives
// them for this stored matrix: none, a rounding to bf16, or int8 codes of these inputs.
template <typename T>
double form_error(const WeightMatrix& stored, const T* x) {
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
  TestWeight(WeightMatrix w)  // NOLINT: implicit on purpose
      : canonical(std::move(w)), stored(stored_weight(canonical)) {}
  const WeightMatrix& of(const Ops& ops) const {
    return ops.activation_dtype() == DType::kBF16 ? stored : canonical;
  }
};
std::string spec_name(const WeightSpec& spec);
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
inline constexpr int64_t kRowCounts[] = {1, 2, 3, 8, 16, 17, 64, 130};

}  // namespace pewter::test
