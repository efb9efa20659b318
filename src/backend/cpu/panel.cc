#include "backend/cpu/panel.h"

#include <algorithm>
#include <cstring>

#include "backend/cpu/panel_rows.h"
#include "tensor/formats/fp8_block128.h"
#include "tensor/formats/int4_group128.h"

namespace pewter {
namespace {

constexpr int64_t round_up(int64_t bytes) { return (bytes + 63) / 64 * 64; }

// Of one matrix of the stack.
struct Parts {
  int64_t values = 0, scales = 0, zeros = 0;
};
Parts parts_of(const WeightSpec& spec) {
  const int64_t outputs = panels_of(spec.n) * kPanelOutputs;
  switch (spec.format) {
    case WeightFormat::kBF16:
      return {.values = outputs * ((spec.k + 1) / 2 * 4)};
    case WeightFormat::kFp8Block128:
      return {.values = outputs * spec.k,
              .scales = fp8_blocks(spec.n) * fp8_blocks(spec.k) * dtype_bytes(spec.scale_dtype)};
    case WeightFormat::kInt4Group128: {
      CHECK(spec.k % kInt4Group == 0, "int4 matrix with ", spec.k, " inputs");
      const int64_t groups = outputs * spec.k / kInt4Group;
      return {.values = outputs * spec.k / 2,
              .scales = groups * dtype_bytes(spec.scale_dtype),
              .zeros = spec.has_zeros ? groups : 0};
    }
    case WeightFormat::kInt8Row:
      return {.values = outputs * coded_inputs(spec.k), .scales = outputs * 4};
    default:
      CHECK(false, weight_format_name(spec.format), " has no panels");
  }
  return {};
}

// The 16 · width bytes of a panel's step: `width` bytes of each output.
template <typename Word>
void interleave(const std::byte* row, int64_t words, int64_t stride, std::byte* to) {
  for (int64_t i = 0; i < words; ++i)
    std::memcpy(to + i * stride, row + i * static_cast<int64_t>(sizeof(Word)), sizeof(Word));
}

// Four canonical bytes hold inputs 0 … 7, two a byte; the result has inputs i and 4 + i in byte i.
uint32_t regroup(uint32_t b) {
  const uint32_t low = b & 0x0F0F0F0Fu, high = (b >> 4) & 0x0F0F0F0Fu;  // inputs 0 2 4 6; 1 3 5 7
  const uint32_t first =
      (low & 0xFF) | (high & 0xFF) << 8 | (low & 0xFF00) << 8 | (high & 0xFF00) << 16;
  const uint32_t second =
      (low >> 16 & 0xFF) | (high >> 16 & 0xFF) << 8 | (low >> 24) << 16 | (high >> 24) << 24;
  return first | second << 4;
}
uint32_t ungroup(uint32_t p) {
  uint32_t b = 0;
  for (uint32_t i = 0; i < 8; ++i) {
    const uint32_t code = p >> (i % 4 * 8 + i / 4 * 4) & 0xF;
    b |= code << (i / 2 * 8 + i % 2 * 4);
  }
  return b;
}

void store_int4_row(const WeightMatrix& w, int64_t index, int64_t row, const WeightMatrix& rows,
                    int64_t from) {
  const int64_t panel = row / kPanelOutputs, output = row % kPanelOutputs;
  const int64_t groups = w.k / kInt4Group;
  const std::byte* source = rows.values[0][from].data();
  std::byte* to = w.values[index][panel].data() + output * 4;
  for (int64_t i = 0; i < w.k / 8; ++i) {
    uint32_t word;
    std::memcpy(&word, source + i * 4, 4);
    word = regroup(word);
    std::memcpy(to + i * 64, &word, 4);
  }
  const int64_t size = dtype_bytes(w.scales.dtype());
  const std::byte* scales = rows.scales[0][from].data();
  std::byte* scales_to = w.scales[index][panel].data() + output * size;
  for (int64_t g = 0; g < groups; ++g)
    std::memcpy(scales_to + g * kPanelOutputs * size, scales + g * size, static_cast<size_t>(size));
  if (!w.zeros.defined()) return;
  const auto* zeros = rows.zeros[0][from].data_as<uint8_t>();
  auto* zeros_to = w.zeros[index][panel].data_as<uint8_t>() + output;
  for (int64_t g = 0; g < groups; ++g) zeros_to[g * kPanelOutputs] = zeros[g];
}

}  // namespace

int64_t panel_bytes(const WeightSpec& spec) {
  const Parts parts = parts_of(spec);
  return round_up(spec.count * parts.values) + round_up(spec.count * parts.scales) +
         round_up(spec.count * parts.zeros);
}

WeightMatrix panel_matrix(const WeightSpec& spec, std::byte* memory) {
  const Parts parts = parts_of(spec);
  WeightMatrix w{
      .format = spec.format, .n = spec.n, .k = spec.k, .count = spec.count, .layout = kPanelLayout};
  const int64_t panels = panels_of(spec.n);
  std::byte* scales = memory + round_up(spec.count * parts.values);
  w.values = {memory, DType::kU8, {spec.count, panels, parts.values / panels}};
  if (spec.format == WeightFormat::kFp8Block128)
    w.scales = {scales, spec.scale_dtype, {spec.count, fp8_blocks(spec.n), fp8_blocks(spec.k)}};
  if (spec.format == WeightFormat::kInt8Row)
    w.scales = {scales, DType::kF32, {spec.count, panels, kPanelOutputs}};
  if (spec.format == WeightFormat::kInt4Group128) {
    const int64_t groups = spec.k / kInt4Group * kPanelOutputs;
    w.scales = {scales, spec.scale_dtype, {spec.count, panels, groups}};
    if (spec.has_zeros)
      w.zeros = {
          scales + round_up(spec.count * parts.scales), DType::kU8, {spec.count, panels, groups}};
  }
  return w;
}

void store_panel_rows(WeightMatrix& w, int64_t index, int64_t row_begin, const WeightMatrix& rows) {
  for (int64_t i = 0; i < rows.n; ++i) {
    const int64_t row = row_begin + i, output = row % kPanelOutputs;
    std::byte* panel = w.values[index][row / kPanelOutputs].data();
    const std::byte* from = rows.values[0][i].data();
    switch (w.format) {
      case WeightFormat::kBF16:
        interleave<uint32_t>(from, w.k / 2, 64, panel + output * 4);
        if (w.k % 2 != 0)  // the other half of the pair is never written
          std::memcpy(panel + w.k / 2 * 64 + output * 4, from + (w.k - 1) * 2, 2);
        break;
      case WeightFormat::kFp8Block128:
        interleave<uint8_t>(from, w.k, kPanelOutputs, panel + output);
        break;
      case WeightFormat::kInt8Row: {
        const int64_t quads = w.k / 4;  // what lies beyond k is never written
        interleave<uint32_t>(from, quads, 64, panel + output * 4);
        std::memcpy(panel + quads * 64 + output * 4, from + quads * 4,
                    static_cast<size_t>(w.k % 4));
        w.scales[index][row / kPanelOutputs].data_as<float>()[output] =
            rows.scales[0].data_as<float>()[i];
        break;
      }
      default:
        store_int4_row(w, index, row, rows, i);
    }
  }
  if (w.format != WeightFormat::kFp8Block128) return;
  const TensorView to = w.scales[index][row_begin / kFp8Block];
  std::memcpy(to.data(), rows.scales.data(), static_cast<size_t>(rows.scales.bytes()));
}

void decode_panel_row(const WeightMatrix& w, int64_t index, int64_t row, float* out) {
  const int64_t panel = row / kPanelOutputs, output = row % kPanelOutputs;
  const std::byte* values = w.values[index][panel].data();
  switch (w.format) {
    case WeightFormat::kBF16: {
      const auto* pairs = reinterpret_cast<const BFloat16*>(values) + output * 2;
      for (int64_t i = 0; i < w.k; ++i)
        out[i] = to_float(pairs[i / 2 * (2 * kPanelOutputs) + i % 2]);
      return;
    }
    case WeightFormat::kFp8Block128:
      for (int64_t i = 0; i < w.k; ++i) {
        const TensorView scales = w.scales[index][row / kFp8Block];
        out[i] = e4m3_to_float(static_cast<uint8_t>(values[i * kPanelOutputs + output])) *
                 load_float(scales.data(), scales.dtype(), i / kFp8Block);
      }
      return;
    case WeightFormat::kInt8Row: {
      const float scale = w.scales[index][panel].data_as<float>()[output];
      for (int64_t i = 0; i < w.k; ++i)
        out[i] = static_cast<float>(static_cast<int8_t>(
                     values[i / 4 * (4 * kPanelOutputs) + output * 4 + i % 4])) *
                 scale;
      return;
    }
    default:
      break;
  }
  const TensorView scales = w.scales[index][panel];
  for (int64_t i = 0; i < w.k; i += 8) {
    uint32_t word;
    std::memcpy(&word, values + i * 8 + output * 4, 4);
    word = ungroup(word);
    const int64_t group = i / kInt4Group * kPanelOutputs + output;
    const float scale = load_float(scales.data(), scales.dtype(), group);
    const int zero = w.zeros.defined() ? w.zeros[index][panel].data_as<uint8_t>()[group] : 8;
    for (int j = 0; j < 8; ++j)
      out[i + j] = static_cast<float>(static_cast<int>(word >> (4 * j) & 0xF) - zero) * scale;
  }
}

}  // namespace pewter
