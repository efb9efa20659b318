// Vector types and functions that CUDA C++ has built in.
#pragma once

#include <algorithm>
#include <atomic>
#include <bit>
#include <cmath>
#include <cstdint>
#include <functional>
#include <type_traits>

#include "emulator/device.h"

struct alignas(8) int2 {
  int x, y;
};
struct alignas(16) int4 {
  int x, y, z, w;
};
struct alignas(4) uchar4 {
  unsigned char x, y, z, w;
};
struct alignas(8) uint2 {
  unsigned x, y;
};
struct alignas(16) uint4 {
  unsigned x, y, z, w;
};
struct alignas(8) float2 {
  float x, y;
};
struct alignas(16) float4 {
  float x, y, z, w;
};
constexpr int2 make_int2(int x, int y) { return {x, y}; }
constexpr int4 make_int4(int x, int y, int z, int w) { return {x, y, z, w}; }
constexpr uint2 make_uint2(unsigned x, unsigned y) { return {x, y}; }
constexpr uint4 make_uint4(unsigned x, unsigned y, unsigned z, unsigned w) { return {x, y, z, w}; }
constexpr float2 make_float2(float x, float y) { return {x, y}; }
constexpr float4 make_float4(float x, float y, float z, float w) { return {x, y, z, w}; }

using std::isfinite;
using std::isnan;

namespace emulator {
// Of two numbers, one of which may be none.
template <typename A, typename B, typename Better>
constexpr auto better_of(A a, B b, Better better) {
  const auto x = static_cast<std::common_type_t<A, B>>(a), y = static_cast<decltype(x)>(b);
  return better(y, x) || x != x ? y : x;
}
}  // namespace emulator
template <typename A, typename B>
constexpr auto min(A a, B b) {
  return emulator::better_of(a, b, std::less<>());
}
template <typename A, typename B>
constexpr auto max(A a, B b) {
  return emulator::better_of(a, b, std::greater<>());
}

inline float __fdividef(float a, float b) { return a / b; }
inline float __expf(float x) { return std::exp(x); }
inline float rsqrtf(float x) { return 1.0f / std::sqrt(x); }
constexpr float __uint_as_float(unsigned bits) { return std::bit_cast<float>(bits); }
constexpr unsigned __float_as_uint(float x) { return std::bit_cast<unsigned>(x); }
constexpr int __float_as_int(float x) { return std::bit_cast<int>(x); }
constexpr int __popcll(uint64_t x) { return std::popcount(x); }
constexpr int __popc(uint32_t x) { return std::popcount(x); }
constexpr int __ffs(int x) { return x == 0 ? 0 : std::countr_zero(static_cast<unsigned>(x)) + 1; }
constexpr unsigned __byte_perm(unsigned low, unsigned high, unsigned selector) {
  const uint64_t bytes = static_cast<uint64_t>(high) << 32 | low;
  unsigned result = 0;
  for (unsigned i = 0; i < 4; ++i) {
    const unsigned which = selector >> (4 * i) & 0xF;
    unsigned byte = static_cast<unsigned>(bytes >> (8 * (which & 7))) & 0xFF;
    if (which & 8) byte = byte & 0x80 ? 0xFF : 0;  // the sign, eight times
    result |= byte << (8 * i);
  }
  return result;
}
constexpr unsigned __vmaxu2(unsigned a, unsigned b) {  // of the halves
  return std::max(a & 0xFFFFu, b & 0xFFFFu) | std::max(a & 0xFFFF0000u, b & 0xFFFF0000u);
}
constexpr int __dp4a(int a, int b, int sum) {
  for (int i = 0; i < 4; ++i)
    sum += static_cast<int8_t>(static_cast<unsigned>(a) >> (8 * i)) *
           static_cast<int8_t>(static_cast<unsigned>(b) >> (8 * i));
  return sum;
}

template <typename T>
T __ldcg(const T* at) {
  return *at;
}
template <typename T>
T __ldcs(const T* at) {
  return *at;
}
inline void __threadfence() {}
inline void __threadfence_system() { std::atomic_thread_fence(std::memory_order_seq_cst); }
inline uint32_t __cvta_generic_to_shared(const void* at) { return emulator::shared_address(at); }

template <typename T>
T atomicAdd(T* at, std::type_identity_t<T> add) {
  emulator::let_others_run();
  const T before = std::atomic_ref<T>(*at).fetch_add(add);
  emulator::wrote_for_others();
  return before;
}
template <typename T>
T atomicOr(T* at, std::type_identity_t<T> bits) {
  emulator::let_others_run();
  const T before = std::atomic_ref<T>(*at).fetch_or(bits);
  emulator::wrote_for_others();
  return before;
}

inline void __syncthreads() { emulator::sync_block(); }
inline int __syncthreads_or(int condition) { return emulator::sync_block_or(condition != 0); }

namespace emulator {

// Lane i's value of lane source(i), its own where that one is not there.
template <typename T>
T shuffle(uint32_t mask, T value, int source) {
  struct In {
    T value;
    int source;
  };
  return together<T>(
      mask, In{value, source}, [](const In* const(&in)[kWarp], T* const(&out)[kWarp]) {
        for (int i = 0; i < kWarp; ++i)
          if (in[i] != nullptr)
            *out[i] = in[in[i]->source] != nullptr ? in[in[i]->source]->value : in[i]->value;
      });
}
template <typename T, typename Fold>
T reduce(uint32_t mask, T value, Fold) {
  return together<T>(mask, value, [](const T* const(&in)[kWarp], T* const(&out)[kWarp]) {
    T total{};
    bool is_first = true;
    for (const T* one : in)
      if (one != nullptr) total = is_first ? *one : Fold{}(total, *one), is_first = false;
    for (T* one : out)
      if (one != nullptr) *one = total;
  });
}

}  // namespace emulator

inline void __syncwarp(uint32_t mask = 0xFFFFFFFFu) { emulator::sync_warp(mask); }
template <typename T>
T __shfl_sync(uint32_t mask, T value, int source, int width = emulator::kWarp) {
  const int i = emulator::lane->index;
  return emulator::shuffle(mask, value, i / width * width + source % width);
}
template <typename T>
T __shfl_xor_sync(uint32_t mask, T value, int bits) {
  return emulator::shuffle(mask, value, emulator::lane->index ^ bits);
}
template <typename T>
T __shfl_up_sync(uint32_t mask, T value, unsigned by, int width = emulator::kWarp) {
  const int i = emulator::lane->index, source = i - static_cast<int>(by);
  return emulator::shuffle(mask, value, source < i / width * width ? i : source);
}
template <typename T>
T __shfl_down_sync(uint32_t mask, T value, unsigned by, int width = emulator::kWarp) {
  const int i = emulator::lane->index, source = i + static_cast<int>(by);
  return emulator::shuffle(mask, value, source >= i / width * width + width ? i : source);
}
inline int __all_sync(uint32_t mask, int condition) {
  return emulator::reduce(mask, condition != 0, [](bool a, bool b) { return a && b; });
}
inline int __any_sync(uint32_t mask, int condition) {
  return emulator::reduce(mask, condition != 0, [](bool a, bool b) { return a || b; });
}
inline unsigned __ballot_sync(uint32_t mask, int condition) {
  const unsigned own = condition != 0 ? 1u << emulator::lane->index : 0;
  return emulator::reduce(mask, own, [](unsigned a, unsigned b) { return a | b; });
}
template <typename T>
T __reduce_add_sync(uint32_t mask, T value) {
  return emulator::reduce(mask, value, [](T a, T b) { return static_cast<T>(a + b); });
}
template <typename T>
T __reduce_max_sync(uint32_t mask, T value) {
  return emulator::reduce(mask, value, [](T a, T b) { return a > b ? a : b; });
}
template <typename T>
T __reduce_min_sync(uint32_t mask, T value) {
  return emulator::reduce(mask, value, [](T a, T b) { return a < b ? a : b; });
}
