// Blocks of the tiled layout (weight_layout.h) times rows, by matrix instructions.
//
// A warp's records pass through a ring in shared memory: copies that bypass registers, kRing of
// them on their way at any time, across the borders of blocks, tiles and matrices. What one step
// does is short enough to stay in the instruction cache whatever the format. Sums are f32; int4 and
// fp8 sum the exact integer (or e4m3) products of 128 inputs first and scale that, so scales cost
// one multiply-add a group and no rounding of a weight.
#pragma once

#include "backend/cuda/common/kernel.cuh"
#include "backend/cuda/common/matrix.cuh"
#include "backend/cuda/linear/stream.h"

namespace pewter::cuda {

constexpr int kRing = 8;               // records on their way: 4 KiB a warp
constexpr int kPlaces = kRing + 1;     // one more, so that the record at hand stays
constexpr int kPlaceBytes = 512 + 80;  // a record and the longest tail

// A lane's place: outputs g and g + 8 of a tile, columns 2t and 2t + 1. The warp's number comes
// from one lane, so that the compiler knows that all lanes branch alike.
struct Lane {
  int lane, warp, g, t;
  __device__ Lane()
      : lane(threadIdx.x % kWarp),
        warp(__shfl_sync(0xFFFFFFFFu, static_cast<int>(threadIdx.x) / kWarp, 0)),
        g(lane / 4),
        t(lane % 4) {}
};

// A warp's ring, by addresses in shared memory. A tail arrives with its block's first record, and
// is read before the next record is taken.
struct Ring {
  uint32_t base;      // of the warp
  uint32_t in, out;   // next places to fill and to take, as offsets
  uint32_t hand = 0;  // the place taken last

  __device__ explicit Ring(const void* places)
      : base(static_cast<uint32_t>(__cvta_generic_to_shared(places))), in(0), out(0) {}

  static __device__ uint32_t after(uint32_t place) {
    return place == (kPlaces - 1) * kPlaceBytes ? 0 : place + kPlaceBytes;
  }
  // Requests this lane's 16 bytes of a record and, of its tail, those at from + tail_at.
  __device__ void push(const uint8_t* from, int lane, bool with_tail, int tail_at) {
    const uint32_t to = base + in + lane * 16;
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(to), "l"(from) : "memory");
    if (with_tail)
      asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(to + 512), "l"(from + tail_at)
                   : "memory");
    commit();
  }
  // Something to wait for in the place of a record when there is none.
  __device__ void commit() {
    asm volatile("cp.async.commit_group;" ::: "memory");
    in = after(in);
  }
  // This lane's 16 bytes of the oldest record.
  __device__ uint4 pop(int lane) {
    asm volatile("cp.async.wait_group %0;" ::"n"(kRing - 1) : "memory");
    hand = base + out;
    uint4 v;
    asm volatile("ld.shared.v4.u32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
                 : "r"(hand + lane * 16)
                 : "memory");
    out = after(out);
    return v;
  }
  // Words of the tail of the record at hand; other lanes brought them.
  __device__ uint32_t tail32(int at) const {
    uint32_t v;
    asm volatile("ld.shared.u32 %0, [%1];" : "=r"(v) : "r"(hand + 512 + at) : "memory");
    return v;
  }
  __device__ uint32_t tail16(int at) const {
    uint16_t v;
    asm volatile("ld.shared.u16 %0, [%1];" : "=h"(v) : "r"(hand + 512 + at) : "memory");
    return v;
  }
};

// bf16 128 + code, twice: the code's four bits under an exponent that gives them the unit 1.
__device__ inline uint32_t bf16x2_of_codes(uint32_t codes) {
  uint32_t d;
  asm("lop3.b32 %0, %1, %2, %3, 0xEA;" : "=r"(d) : "r"(codes), "r"(0x000F000Fu), "r"(0x43004300u));
  return d;
}
__device__ inline uint32_t bf16x2_subtract(uint32_t a, uint32_t b) {
  const __nv_bfloat162 d = __hsub2(*reinterpret_cast<const __nv_bfloat162*>(&a),
                                   *reinterpret_cast<const __nv_bfloat162*>(&b));
  return *reinterpret_cast<const uint32_t*>(&d);
}

// Two e4m3 codes as bf16. Their exponent and mantissa fall into place as a bf16 of 2⁻¹²⁰ times the
// value, subnormal codes included; the product with 2¹²⁰ is exact.
__device__ inline uint32_t bf16x2_of_e4m3(uint32_t codes) {
  const uint32_t spread = __byte_perm(codes, 0, 0x1404);  // bytes 0 x0 0 x1, each in a high byte
  const uint32_t bits = ((spread & 0x7F007F00u) >> 4) | (spread & 0x80008000u);
  const uint32_t power = 0x7B807B80u;
  const __nv_bfloat162 d = __hmul2(*reinterpret_cast<const __nv_bfloat162*>(&bits),
                                   *reinterpret_cast<const __nv_bfloat162*>(&power));
  return *reinterpret_cast<const uint32_t*>(&d);
}

// Consecutive inputs of this lane's column of an operand, from shared memory or from memory.
template <bool kShared>
struct Inputs;
template <>
struct Inputs<true> {
  uint32_t row = 0;  // address in shared memory
  __device__ void set(const __nv_bfloat16* at) {
    row = static_cast<uint32_t>(__cvta_generic_to_shared(at));
  }
  __device__ uint4 load(int k) const {
    uint4 v;
    asm volatile("ld.shared.v4.u32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
                 : "r"(row + 2 * k));
    return v;
  }
};
template <>
struct Inputs<false> {
  const __nv_bfloat16* row = nullptr;
  __device__ void set(const __nv_bfloat16* at) { row = at; }
  __device__ uint4 load(int k) const { return *reinterpret_cast<const uint4*>(row + k); }
};

// Sums of a warp: acc[j] is the 16 × 8 tile of outputs times the j-th eight rows; part the unscaled
// sums of the group at hand.
template <int kTiles>
struct Sums {
  float acc[kTiles][4] = {};
  float part[kTiles][4] = {};

  // part, scaled for outputs g and g + 8, joins acc.
  __device__ void scale(float low, float high) {
#pragma unroll
    for (int j = 0; j < kTiles; ++j)
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        acc[j][i] = fmaf(i < 2 ? low : high, part[j][i], acc[j][i]);
        part[j][i] = 0;
      }
  }
};

// Each of these takes blocks [block, end) of a tile off the ring; refill() requests a record in
// place of each.
template <int kTiles, bool kShared, typename Refill>
__device__ inline void consume_int4(const TileStack& w, Ring& ring, int block, int end,
                                    const Lane& me, const Inputs<kShared> (&x)[kTiles],
                                    Sums<kTiles>& sums, const Refill& refill) {
  int k = 128 * block + 16 * me.t;
#pragma unroll 1
  for (; block < end; ++block) {
    float scale[2];
    uint32_t zero[2] = {0x43084308u, 0x43084308u};  // 128 + zero point, twice
#pragma unroll
    for (int i = 0; i < 2; ++i, k += 64) {
      const uint4 word = ring.pop(me.lane);
      if (i == 0) {
        __syncwarp();
        int zeros_at = 32;
        if (w.scale_dtype == DType::kF32) {
          scale[0] = __uint_as_float(ring.tail32(8 * me.g));
          scale[1] = __uint_as_float(ring.tail32(8 * me.g + 4));
          zeros_at = 64;
        } else {
          const uint32_t both = ring.tail32(4 * me.g);
          const float2 half = __half22float2(*reinterpret_cast<const __half2*>(&both));
          const bool is_half = w.scale_dtype == DType::kF16;
          scale[0] = is_half ? half.x : __uint_as_float(both << 16);
          scale[1] = is_half ? half.y : __uint_as_float(both & 0xFFFF0000u);
        }
        if (w.has_zeros) {
          const uint32_t both = ring.tail16(zeros_at + 2 * me.g);
          zero[0] = (0x4300u | (both & 0xFFu)) * 0x00010001u;
          zero[1] = (0x4300u | both >> 8) * 0x00010001u;
        }
      }
      refill();
      const uint32_t words[4] = {word.x, word.y, word.z, word.w};
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        uint4 b[kTiles];
#pragma unroll
        for (int j = 0; j < kTiles; ++j) b[j] = x[j].load(k + 8 * half);
#pragma unroll
        for (int s = 0; s < 2; ++s) {
          uint32_t a[4];
#pragma unroll
          for (int p = 0; p < 4; ++p)  // the difference of bf16 integers is exact
            a[p] = bf16x2_subtract(bf16x2_of_codes(words[2 * half + s] >> (4 * p)), zero[p % 2]);
#pragma unroll
          for (int j = 0; j < kTiles; ++j)
            multiply_add(sums.part[j], a, s == 0 ? b[j].x : b[j].z, s == 0 ? b[j].y : b[j].w);
        }
      }
    }
    sums.scale(scale[0], scale[1]);
  }
}

template <int kTiles, bool kShared, typename Refill>
__device__ inline void consume_fp8(Ring& ring, int block, int end, const Lane& me,
                                   const Inputs<kShared> (&x)[kTiles], Sums<kTiles>& sums,
                                   const Refill& refill) {
  int k = 128 * block + 8 * me.t;
#pragma unroll 1
  for (; block < end; ++block) {
    float scale = 0;
#pragma unroll
    for (int i = 0; i < 4; ++i, k += 32) {
      const uint4 word = ring.pop(me.lane);
      if (i == 0) {
        __syncwarp();
        scale = __uint_as_float(ring.tail32(0));
      }
      refill();
      uint4 b[kTiles];
#pragma unroll
      for (int j = 0; j < kTiles; ++j) b[j] = x[j].load(k);
#pragma unroll
      for (int s = 0; s < 2; ++s) {
        const uint32_t low = s == 0 ? word.x : word.z, high = s == 0 ? word.y : word.w;
        const uint32_t a[4] = {bf16x2_of_e4m3(low), bf16x2_of_e4m3(low >> 16), bf16x2_of_e4m3(high),
                               bf16x2_of_e4m3(high >> 16)};
#pragma unroll
        for (int j = 0; j < kTiles; ++j)
          multiply_add(sums.part[j], a, s == 0 ? b[j].x : b[j].z, s == 0 ? b[j].y : b[j].w);
      }
    }
    sums.scale(scale, scale);
  }
}

template <int kTiles, bool kShared, typename Refill>
__device__ inline void consume_bf16(Ring& ring, int block, int end, const Lane& me,
                                    const Inputs<kShared> (&x)[kTiles], Sums<kTiles>& sums,
                                    const Refill& refill) {
  int k = 64 * block + 16 * me.t;
#pragma unroll 1
  for (; block < end; ++block, k += 64) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      uint4 b[kTiles];
#pragma unroll
      for (int j = 0; j < kTiles; ++j) b[j] = x[j].load(k + 8 * half);
#pragma unroll
      for (int s = 0; s < 2; ++s) {
        const uint4 word = ring.pop(me.lane);
        refill();
        const uint32_t a[4] = {word.x, word.y, word.z, word.w};
#pragma unroll
        for (int j = 0; j < kTiles; ++j)
          multiply_add(sums.acc[j], a, s == 0 ? b[j].x : b[j].z, s == 0 ? b[j].y : b[j].w);
      }
    }
  }
}

template <int kTiles, bool kShared, typename Refill>
__device__ inline void consume(const TileStack& w, Ring& ring, int block, int end, const Lane& me,
                               const Inputs<kShared> (&x)[kTiles], Sums<kTiles>& sums,
                               const Refill& refill) {
  switch (w.format) {
    case WeightFormat::kInt4Group128:
      return consume_int4<kTiles, kShared>(w, ring, block, end, me, x, sums, refill);
    case WeightFormat::kFp8Block128:
      return consume_fp8<kTiles, kShared>(ring, block, end, me, x, sums, refill);
    default:
      return consume_bf16<kTiles, kShared>(ring, block, end, me, x, sums, refill);
  }
}

}  // namespace pewter::cuda
