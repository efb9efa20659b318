// Element types and their scalar conversions. Rounding to a narrower type is to nearest, ties to
// even.
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>
#include <string_view>

#include "base/check.h"

namespace pewter {

enum class DType : uint8_t {
  kBool,
  kU8,
  kI8,
  kF8E4M3,
  kF8E5M2,
  kI16,
  kU16,
  kF16,
  kBF16,
  kI32,
  kU32,
  kF32,
  kI64,
  kU64,
  kF64
};

constexpr int64_t dtype_bytes(DType dtype) {
  switch (dtype) {
    case DType::kBool:
    case DType::kU8:
    case DType::kI8:
    case DType::kF8E4M3:
    case DType::kF8E5M2:
      return 1;
    case DType::kI16:
    case DType::kU16:
    case DType::kF16:
    case DType::kBF16:
      return 2;
    case DType::kI32:
    case DType::kU32:
    case DType::kF32:
      return 4;
    case DType::kI64:
    case DType::kU64:
    case DType::kF64:
      return 8;
  }
  return 0;
}

// The name safetensors uses: "BF16", "F8_E4M3", …
constexpr std::string_view dtype_name(DType dtype) {
  constexpr std::string_view kNames[] = {"BOOL", "U8",  "I8",  "F8_E4M3", "F8_E5M2",
                                         "I16",  "U16", "F16", "BF16",    "I32",
                                         "U32",  "F32", "I64", "U64",     "F64"};
  return kNames[static_cast<int>(dtype)];
}

// Storage of a bfloat16 / float16 value; arithmetic happens in float.
struct BFloat16 {
  uint16_t bits;
};
struct Float16 {
  uint16_t bits;
};

constexpr float to_float(float x) { return x; }
constexpr float to_float(BFloat16 x) {
  return std::bit_cast<float>(static_cast<uint32_t>(x.bits) << 16);
}
constexpr float to_float(Float16 x) {
  const uint32_t sign = static_cast<uint32_t>(x.bits & 0x8000u) << 16;
  const uint32_t exponent = (x.bits >> 10) & 0x1Fu;
  const uint32_t mantissa = x.bits & 0x3FFu;
  if (exponent == 0) {  // subnormals count: AutoRound's smallest scales (1e-5) are among them
    const float magnitude = static_cast<float>(mantissa) * 0x1p-24f;
    return sign != 0 ? -magnitude : magnitude;
  }
  if (exponent == 31) return std::bit_cast<float>(sign | 0x7F800000u | (mantissa << 13));
  return std::bit_cast<float>(sign | ((exponent + 112) << 23) | (mantissa << 13));
}

constexpr BFloat16 to_bfloat16(float x) {
  const uint32_t bits = std::bit_cast<uint32_t>(x);
  if ((bits & 0x7FFFFFFFu) > 0x7F800000u)
    return {static_cast<uint16_t>((bits >> 16) | 0x40u)};  // NaN
  return {static_cast<uint16_t>((bits + 0x7FFFu + ((bits >> 16) & 1u)) >> 16)};
}

// FP8 E4M3 (fn): bias 7, largest 448, no infinities, NaN = 0x7F and 0xFF.
constexpr float e4m3_to_float(uint8_t code) {
  const uint32_t exponent = (code >> 3) & 15u;
  const uint32_t mantissa = code & 7u;
  float magnitude = 0;
  if (exponent == 15 && mantissa == 7)
    magnitude = std::bit_cast<float>(0x7FC00000u);
  else if (exponent == 0)
    magnitude = static_cast<float>(mantissa) * 0x1p-9f;
  else
    magnitude = std::bit_cast<float>(((exponent + 120) << 23) | (mantissa << 20));
  return (code & 0x80u) != 0 ? -magnitude : magnitude;
}

// Element i of an array of type dtype, which must be a floating type of 16 bits or more.
inline float load_float(const void* data, DType dtype, int64_t i) {
  switch (dtype) {
    case DType::kF32:
      return static_cast<const float*>(data)[i];
    case DType::kBF16:
      return to_float(static_cast<const BFloat16*>(data)[i]);
    case DType::kF16:
      return to_float(static_cast<const Float16*>(data)[i]);
    default:
      CHECK(false, "load_float from ", dtype_name(dtype));
  }
}

// Activations are F32 or BF16.
inline void store_float(void* data, DType dtype, int64_t i, float value) {
  switch (dtype) {
    case DType::kF32:
      static_cast<float*>(data)[i] = value;
      return;
    case DType::kBF16:
      static_cast<BFloat16*>(data)[i] = to_bfloat16(value);
      return;
    default:
      CHECK(false, "store_float to ", dtype_name(dtype));
  }
}

}  // namespace pewter
