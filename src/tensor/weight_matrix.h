// WeightMatrix: `count` stacked [n, k] matrices (the experts of a layer; 1 otherwise) in one
// format.
//
// In the *canonical* layout the tensors are as the table says, whatever file they came from. The
// loader makes canonical rows; a backend stores them in a layout of its own choosing (layout !=
// kCanonical), which only that backend reads. n counts outputs, k inputs: y = x · Wᵀ.
//
//   format         values                   scales                              zeros
//   f32 f16 bf16   [count, n, k]            –                                   –
//   fp8_block128   [count, n, k] E4M3       [count, ⌈n/128⌉, ⌈k/128⌉] BF16|F32  –
//   int4_group128  [count, n, k/2] U8       [count, n, k/128] F16|BF16|F32      [count, n, k/128]
//   U8, or undefined
//   int8_row       [count, n, k] I8                     [count, n] F32                      –
//
// int4: input 2j sits in the low nibble of byte j, 2j+1 in the high one; W = (code − zero)·scale,
// zero = 8 when zeros is undefined; scales are signed. fp8: W = e4m3(value)·scale. int8_row: W =
// value·scale; no file has it, a loader makes it. Each has its reference decoder in formats/ and a
// page in docs/formats/.
#pragma once

#include <memory>

#include "tensor/buffer.h"
#include "tensor/tensor_view.h"

namespace pewter {

enum class WeightFormat : uint8_t { kF32, kF16, kBF16, kFp8Block128, kInt4Group128, kInt8Row };

constexpr std::string_view weight_format_name(WeightFormat format) {
  constexpr std::string_view kNames[] = {"f32",          "f16",           "bf16",
                                         "fp8_block128", "int4_group128", "int8_row"};
  return kNames[static_cast<int>(format)];
}

// What a matrix will be, before there is memory for it.
struct WeightSpec {
  WeightFormat format = WeightFormat::kBF16;
  int64_t n = 0, k = 0, count = 1;
  DType scale_dtype = DType::kF32;  // of the quantised formats
  bool has_zeros = false;           // int4: zero points other than 8
};

struct WeightMatrix {
  static constexpr int kCanonical = 0;

  WeightFormat format = WeightFormat::kBF16;
  int64_t n = 0, k = 0, count = 1;
  TensorView values, scales, zeros;
  int layout = kCanonical;
  std::shared_ptr<const Buffer> storage;  // what the views point into, when the matrix owns it

  bool defined() const { return values.defined(); }
  // Matrix `index` of a canonical stack, as a stack of one.
  WeightMatrix at(int64_t index) const {
    CHECK(layout == kCanonical, "at() of a matrix in a backend's layout");
    WeightMatrix one = *this;
    one.count = 1;
    one.values = values.slice(0, index, index + 1);
    if (scales.defined()) one.scales = scales.slice(0, index, index + 1);
    if (zeros.defined()) one.zeros = zeros.slice(0, index, index + 1);
    return one;
  }
};

// Bytes the model needs for these matrices: values and scales, and zero points only where the file
// has its own.
int64_t weight_bytes(const WeightSpec& spec);
inline WeightSpec spec_of(const WeightMatrix& w) {
  return {.format = w.format,
          .n = w.n,
          .k = w.k,
          .count = w.count,
          .scale_dtype = w.scales.defined() ? w.scales.dtype() : DType::kF32,
          .has_zeros = w.zeros.defined()};
}

// A canonical matrix in memory of canonical_bytes, the host's or a device's: values, scales and
// zeros one after another, each at a multiple of 256 bytes.
int64_t canonical_bytes(const WeightSpec& spec);
WeightMatrix canonical_weight(const WeightSpec& spec, std::byte* memory);
// The same in one new host buffer, contents undefined.
Result<WeightMatrix> make_canonical_weight(const WeightSpec& spec);

// Row `row` (0 … n-1) of matrix `index` as k floats; canonical layout only. The reference decoder
// of every format.
void decode_row(const WeightMatrix& w, int64_t index, int64_t row, float* out);

}  // namespace pewter
