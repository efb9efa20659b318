// Input rows of a stage's projections, in every form (panel_rows.h) that its matrices want.
#pragma once

#include <algorithm>
#include <initializer_list>

#include "backend/cpu/arena.h"
#include "backend/cpu/dot.h"
#include "backend/cpu/panel_rows.h"
#include "backend/cpu/rows.h"

namespace pewter {

struct InputForms {
  bool floats = false, halves = false, codes = false;

  void add(const WeightMatrix& w) {
    switch (input_form(w)) {
      case InputForm::kFloats:
        floats = true;
        return;
      case InputForm::kHalves:
        halves = true;
        return;
      case InputForm::kCodes:
        codes = true;
        return;
    }
  }
  InputForms() = default;
  InputForms(std::initializer_list<const WeightMatrix*> matrices) {
    for (const WeightMatrix* w : matrices) add(*w);
  }
};

// Elements from one row of inputs to the next. Rows of a power of two would all start in the same
// few sets of a cache, and a tile reads a dozen side by side. Rows that become codes are whole
// groups.
constexpr int64_t input_stride(int64_t k) { return coded_inputs(k) + 32; }

// Pointers to rows, one array a form; null when the rows do not have it.
struct InputRows {
  const float** floats = nullptr;
  const BFloat16** halves = nullptr;
  const int8_t** codes = nullptr;

  InputRows from(int64_t row) const {
    return {.floats = floats == nullptr ? nullptr : floats + row,
            .halves = halves == nullptr ? nullptr : halves + row,
            .codes = codes == nullptr ? nullptr : codes + row};
  }
  InputRows only(const InputForms& forms) const {
    return {.floats = forms.floats ? floats : nullptr,
            .halves = forms.halves ? halves : nullptr,
            .codes = forms.codes ? codes : nullptr};
  }
  // Row `to` is row `row` again.
  void repeat(int64_t row, int64_t to) const {
    if (floats != nullptr) floats[to] = floats[row];
    if (halves != nullptr) halves[to] = halves[row];
    if (codes != nullptr) codes[to] = codes[row];
  }
};

// Bytes of the codes' array for an element of a row: codes, scales and offsets of 128 inputs or
// more take less.
inline constexpr int64_t kCodeBytes = 2;

// Memory of the rows: each form has an array of its own.
struct InputMemory {
  int64_t inputs = 0;  // elements of `floats`
  float* floats = nullptr;
  BFloat16* halves = nullptr;
  int8_t* codes = nullptr;
  InputRows rows;

  void lay_out(Arena& arena, int64_t row_count, int64_t input_count) {
    inputs = input_count;
    rows = {.floats = arena.take<const float*>(row_count),
            .halves = arena.take<const BFloat16*>(row_count),
            .codes = arena.take<const int8_t*>(row_count)};
  }
  void lay_out_elements(Arena& arena) {
    floats = arena.take<float>(inputs);
    halves = arena.take<BFloat16>(inputs);
    codes = arena.take<int8_t>(inputs * kCodeBytes);
  }
};

// Stores row `at` of k inputs, which `fill` writes as floats, `offset` elements into each form's
// array. `row` is scratch for it.
template <typename Fill>
void store_input(const InputMemory& memory, int64_t at, int64_t offset, int64_t k,
                 const InputForms& forms, float* row, const Fill& fill) {
  if (forms.floats) row = memory.floats + offset;
  fill(row);
  std::fill(row + k, row + (forms.codes ? coded_inputs(k) : padded_inputs(k)), 0.0f);
  if (forms.floats) memory.rows.floats[at] = row;
  if (forms.halves) {
    BFloat16* halves = memory.halves + offset;
    narrow_row(row, reinterpret_cast<std::byte*>(halves), DType::kBF16, padded_inputs(k));
    memory.rows.halves[at] = halves;
  }
  if (forms.codes) {
    int8_t* codes = memory.codes + offset * kCodeBytes;
    code_row(row, coded_inputs(k), codes);
    memory.rows.codes[at] = codes;
  }
}

}  // namespace pewter
