// What weights are checked for while they stream from disk. Plain integer arithmetic on eight bytes
// at a time: the checks must keep up with the disk.
#pragma once

#include <cstdint>
#include <span>

#include "tensor/dtype.h"

namespace pewter {

// Index of the first NaN or infinity among elements of an F32, F16 or BF16 array, or -1. bytes need
// not be aligned.
int64_t find_nonfinite(std::span<const std::byte> bytes, DType dtype);

// Index of the first FP8 E4M3 NaN (0x7F, 0xFF), or -1.
int64_t find_fp8_nan(std::span<const std::byte> codes);

}  // namespace pewter
