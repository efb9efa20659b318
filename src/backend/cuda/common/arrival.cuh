// Values that arrive: a word of memory holds two bf16 and the number of the launch that wrote them,
// or a value that is never zero.
// Who waits for a word has its values in the moment that its number is right, one way through the
// L2 cache; a count behind a fence, and the values behind the count, would take three.
#pragma once

#include <cuda_bf16.h>

#include <cstdint>

namespace pewter::cuda {

// The values of columns 2i and 2i + 1, the first in the low half.
__device__ inline void send_pair(uint64_t* word, uint32_t values, uint32_t number) {
  asm volatile("st.relaxed.gpu.global.u64 [%0], %1;" ::"l"(word),
               "l"(static_cast<uint64_t>(number) << 32 | values)
               : "memory");
}
__device__ inline uint64_t look_at(const uint64_t* word) {
  uint64_t seen;
  asm volatile("ld.relaxed.gpu.global.u64 %0, [%1];" : "=l"(seen) : "l"(word) : "memory");
  return seen;
}

// A word that is zero until it is written.
__device__ inline uint64_t wait_for_word(const uint64_t* word) {
  uint64_t seen = 0;
  while (seen == 0) seen = look_at(word);
  return seen;
}
// The same of words of 32 bits whose values are never zero.
__device__ inline void send_word(uint32_t* word, uint32_t value) {
  asm volatile("st.relaxed.gpu.global.u32 [%0], %1;" ::"l"(word), "r"(value) : "memory");
}
__device__ inline uint4 look_at_four(const uint32_t* words) {
  uint4 seen;
  asm volatile("ld.relaxed.gpu.global.v4.u32 {%0, %1, %2, %3}, [%4];"
               : "=r"(seen.x), "=r"(seen.y), "=r"(seen.z), "=r"(seen.w)
               : "l"(words)
               : "memory");
  return seen;
}
__device__ inline uint32_t wait_for_word(const uint32_t* word) {
  uint32_t seen = 0;
  while (seen == 0)
    asm volatile("ld.relaxed.gpu.global.u32 %0, [%1];" : "=r"(seen) : "l"(word) : "memory");
  return seen;
}

// The number of a launch. By one thread, behind its warp's writes: they are seen by whoever sees
// the number.
__device__ inline void publish_number(uint32_t* word, uint32_t number) {
  asm volatile("st.release.gpu.global.u32 [%0], %1;" ::"l"(word), "r"(number) : "memory");
}
// By a warp: until all of `count` words have it.
__device__ inline void wait_for_numbers(const uint32_t* words, int count, uint32_t number) {
  bool are_here;
  do {
    are_here = true;
    for (int i = static_cast<int>(threadIdx.x) % 32; i < count; i += 32) {
      uint32_t seen;
      asm volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(seen) : "l"(words + i) : "memory");
      are_here = are_here && seen == number;
    }
  } while (!__all_sync(0xFFFFFFFFu, are_here));
  __syncwarp();  // what one lane has seen is seen by all
}

// Rows of them, [rows, pairs].
struct Arrivals {
  static constexpr bool kArrive = true;
  const uint64_t* words;
  int pairs;
  uint32_t number;

  __device__ const uint64_t* place(int row, int column) const {
    return words + static_cast<int64_t>(row) * pairs + column / 2;
  }
  __device__ uint64_t ask(int row, int column) const { return look_at(place(row, column)); }
  // Before words are asked for together: one that has not come.
  __device__ uint64_t first_look(int, int) const { return static_cast<uint64_t>(~number) << 32; }
  __device__ bool has(uint64_t word) const { return static_cast<uint32_t>(word >> 32) == number; }
  // Of a word that has come.
  static __device__ __nv_bfloat16 value(uint64_t word, int column) {
    const auto values = static_cast<uint32_t>(word);
    return __ushort_as_bfloat16(
        static_cast<unsigned short>(column % 2 == 0 ? values : values >> 16));
  }
  // The value of a word that was asked for, when it has come.
  __device__ __nv_bfloat16 take(uint64_t word, int row, int column) const {
    while (!has(word)) word = ask(row, column);
    return value(word, column);
  }
};

// Rows that are there.
struct GivenRows {
  static constexpr bool kArrive = false;
  const __nv_bfloat16* rows;
  int64_t stride;

  __device__ uint64_t ask(int row, int column) const {
    return __bfloat16_as_ushort(rows[row * stride + column]);
  }
  __device__ uint64_t first_look(int row, int column) const { return ask(row, column); }
  static __device__ bool has(uint64_t) { return true; }
  static __device__ __nv_bfloat16 value(uint64_t word, int) {
    return __ushort_as_bfloat16(static_cast<unsigned short>(word));
  }
  static __device__ __nv_bfloat16 take(uint64_t word, int, int column) {
    return value(word, column);
  }
};

}  // namespace pewter::cuda
