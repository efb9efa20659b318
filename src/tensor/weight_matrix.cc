#include "tensor/weight_matrix.h"

#include "tensor/formats/fp8_block128.h"
#include "tensor/formats/int4_group128.h"
#include "tensor/formats/int8_row.h"

namespace pewter {
namespace {

struct PartBytes {
  int64_t values = 0, scales = 0, zeros = 0;
};

PartBytes part_bytes(const WeightSpec& spec) {
  const int64_t elements = spec.count * spec.n * spec.k;
  switch (spec.format) {
    case WeightFormat::kF32:
      return {.values = elements * 4};
    case WeightFormat::kF16:
    case WeightFormat::kBF16:
      return {.values = elements * 2};
    case WeightFormat::kFp8Block128:
      return {.values = elements,
              .scales = spec.count * fp8_blocks(spec.n) * fp8_blocks(spec.k) *
                        dtype_bytes(spec.scale_dtype)};
    case WeightFormat::kInt4Group128: {
      CHECK(spec.k % kInt4Group == 0, "int4 matrix with ", spec.k, " inputs");
      const int64_t groups = elements / kInt4Group;
      return {.values = elements / 2,
              .scales = groups * dtype_bytes(spec.scale_dtype),
              .zeros = spec.has_zeros ? groups : 0};
    }
    case WeightFormat::kInt8Row:
      return {.values = elements, .scales = spec.count * spec.n * 4};
  }
  return {};
}

constexpr int64_t round_up(int64_t bytes) { return (bytes + 255) / 256 * 256; }

}  // namespace

int64_t weight_bytes(const WeightSpec& spec) {
  const PartBytes parts = part_bytes(spec);
  return parts.values + parts.scales + parts.zeros;
}

int64_t canonical_bytes(const WeightSpec& spec) {
  const PartBytes parts = part_bytes(spec);
  return round_up(parts.values) + round_up(parts.scales) + parts.zeros;
}

WeightMatrix canonical_weight(const WeightSpec& spec, std::byte* values) {
  const PartBytes parts = part_bytes(spec);
  std::byte* const scales = values + round_up(parts.values);
  std::byte* const zeros = scales + round_up(parts.scales);
  WeightMatrix w{.format = spec.format, .n = spec.n, .k = spec.k, .count = spec.count};
  switch (spec.format) {
    case WeightFormat::kF32:
      w.values = {values, DType::kF32, {spec.count, spec.n, spec.k}};
      break;
    case WeightFormat::kF16:
      w.values = {values, DType::kF16, {spec.count, spec.n, spec.k}};
      break;
    case WeightFormat::kBF16:
      w.values = {values, DType::kBF16, {spec.count, spec.n, spec.k}};
      break;
    case WeightFormat::kFp8Block128:
      w.values = {values, DType::kF8E4M3, {spec.count, spec.n, spec.k}};
      w.scales = {scales, spec.scale_dtype, {spec.count, fp8_blocks(spec.n), fp8_blocks(spec.k)}};
      break;
    case WeightFormat::kInt4Group128:
      w.values = {values, DType::kU8, {spec.count, spec.n, spec.k / 2}};
      w.scales = {scales, spec.scale_dtype, {spec.count, spec.n, spec.k / kInt4Group}};
      if (spec.has_zeros) w.zeros = {zeros, DType::kU8, {spec.count, spec.n, spec.k / kInt4Group}};
      break;
    case WeightFormat::kInt8Row:
      w.values = {values, DType::kI8, {spec.count, spec.n, spec.k}};
      w.scales = {scales, DType::kF32, {spec.count, spec.n}};
      break;
  }
  return w;
}

Result<WeightMatrix> make_canonical_weight(const WeightSpec& spec) {
  TRY_ASSIGN(Buffer buffer, Buffer::host(canonical_bytes(spec)));
  WeightMatrix w = canonical_weight(spec, buffer.data());
  w.storage = std::make_shared<const Buffer>(std::move(buffer));
  return w;
}

void decode_row(const WeightMatrix& w, int64_t index, int64_t row, float* out) {
  CHECK(w.layout == WeightMatrix::kCanonical, "decode_row of a matrix in a backend's layout");
  DCHECK(index < w.count && row < w.n, "row ", row, " of matrix ", index);
  switch (w.format) {
    case WeightFormat::kF32:
    case WeightFormat::kF16:
    case WeightFormat::kBF16: {
      const TensorView values = w.values[index][row];
      for (int64_t i = 0; i < w.k; ++i) out[i] = load_float(values.data(), values.dtype(), i);
      return;
    }
    case WeightFormat::kFp8Block128:
      decode_fp8_row(w, index, row, out);
      return;
    case WeightFormat::kInt4Group128:
      decode_int4_row(w, index, row, out);
      return;
    case WeightFormat::kInt8Row:
      decode_int8_row(w, index, row, out);
      return;
  }
}

}  // namespace pewter
