#include "tensor/random_rows.h"

#include <algorithm>
#include <cstring>

namespace pewter {

void fill_random_rows(const WeightMatrix& rows, const RandomRows& random) {
  CHECK(rows.layout == WeightMatrix::kCanonical && !rows.zeros.defined() &&
            rows.format != WeightFormat::kF16,
        "random rows of ", weight_format_name(rows.format));
  const int64_t bytes = rows.values.bytes();
  for (int64_t at = 0; at < bytes; at += 8) {
    const uint64_t values = random_values(rows.format, random.deviation,
                                          random_bits(random.seed, static_cast<uint64_t>(at / 8)));
    std::memcpy(rows.values.data() + at, &values,
                static_cast<size_t>(std::min<int64_t>(8, bytes - at)));
  }
  if (!rows.scales.defined()) return;
  const DType dtype = rows.scales.dtype();
  const uint64_t seed = scale_seed(random.seed);
  for (int64_t i = 0; i < rows.scales.elements(); ++i) {
    const uint32_t bits = scale_bits(
        dtype,
        random_scale(rows.format, random.deviation, random_bits(seed, static_cast<uint64_t>(i))));
    std::memcpy(rows.scales.data() + i * dtype_bytes(dtype), &bits,
                static_cast<size_t>(dtype_bytes(dtype)));
  }
}

}  // namespace pewter
