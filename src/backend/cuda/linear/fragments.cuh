// Records of the tiled layout (weight_layout.h) times rows, by matrix instructions.
//
// A warp takes records in batches of kBatch, 4 KiB: eight 16-byte loads a lane in flight; as soon
// as a record is used, the one kBatch further on is requested into its registers. Sums are f32;
// int4 and fp8 sum the exact integer (or e4m3) products of 128 inputs first and scale that, so
// scales cost one multiply-add a group and no rounding of a weight.
#pragma once

#include "backend/cuda/common/kernel.cuh"
#include "backend/cuda/linear/stream.h"

namespace pewter::cuda {

constexpr int kBatch = 8;

// What belongs to a batch besides its records. int4: lane 8·group + i holds that of outputs i and
// i + 8 of that group: two scales (one word if they are 16-bit) and two zero points. fp8: lane b
// holds the scale of block b.
struct Scales {
  uint32_t scale[2];
  uint32_t zeros;
};

// A run of records on its way: where a lane reads, and how many are left.
struct Run {
  const uint4* from = nullptr;
  int count = 0;
};

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

// Records that belong together: a group of int4, a block of fp8, 64 inputs of bf16.
__device__ inline int record_unit(WeightFormat format) {
  return format == WeightFormat::kInt4Group128 ? 2 : 4;
}

__device__ inline uint4 load_stream(const uint4* from) {
  uint4 v;
  asm volatile("ld.global.nc.L1::no_allocate.v4.u32 {%0, %1, %2, %3}, [%4];"
               : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
               : "l"(from));
  return v;
}

__device__ inline float scale_value(const void* scales, DType dtype, int64_t at) {
  switch (dtype) {
    case DType::kF16:
      return to_float(static_cast<const __half*>(scales)[at]);
    case DType::kBF16:
      return to_float(static_cast<const __nv_bfloat16*>(scales)[at]);
    default:
      return static_cast<const float*>(scales)[at];
  }
}

// Records [record, min(record + kBatch, end)) of a tile.
__device__ inline Run run_at(const TileStack& w, int64_t index, int tile, int record, int end,
                             const Lane& at) {
  return {w.values + index * w.value_stride +
              (static_cast<int64_t>(tile) * w.records + record) * kWarp + at.lane,
          min(end - record, kBatch)};
}

__device__ inline void request(const Run& run, int i, uint4& slot) {
  if (i < run.count) slot = load_stream(run.from + i * kWarp);
}

// Requests what belongs to the batch that begins with this record.
__device__ inline Scales load_scales(const TileStack& w, int64_t index, int tile, int record,
                                     const Lane& at) {
  Scales s{};
  if (w.format == WeightFormat::kInt4Group128) {
    if (record / 2 + at.lane / 8 >= w.groups) return s;
    const int64_t place = (static_cast<int64_t>(tile) * w.groups + record / 2) * 16 + 2 * at.lane;
    const int64_t first = index * w.scale_stride + place;
    if (w.scale_dtype == DType::kF32) {
      const uint2 both =
          *reinterpret_cast<const uint2*>(static_cast<const float*>(w.scales) + first);
      s.scale[0] = both.x;
      s.scale[1] = both.y;
    } else {
      s.scale[0] =
          *reinterpret_cast<const uint32_t*>(static_cast<const uint16_t*>(w.scales) + first);
    }
    if (w.zeros != nullptr)
      s.zeros = *reinterpret_cast<const uint16_t*>(w.zeros + index * w.zero_stride + place);
  } else if (w.format == WeightFormat::kFp8Block128) {
    const int block = record / 4 + at.lane;
    if (at.lane < 2 && block < w.groups)
      s.scale[0] = __float_as_uint(
          scale_value(w.scales, w.scale_dtype,
                      index * w.scale_stride + static_cast<int64_t>(tile / 8) * w.groups + block));
  }
  return s;
}

__device__ inline void multiply_add(float (&d)[4], const uint32_t (&a)[4], uint32_t b0,
                                    uint32_t b1) {
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, "
      "{%8, %9}, {%0, %1, %2, %3};"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

// bf16 128 + code, twice: the code's four bits under an exponent that gives them the unit 1.
__device__ inline uint32_t bf16x2_of_codes(uint32_t codes, uint32_t mask, uint32_t exponent) {
  uint32_t d;
  asm("lop3.b32 %0, %1, %2, %3, 0xEA;" : "=r"(d) : "r"(codes), "r"(mask), "r"(exponent));
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

// Adds a batch's products to acc: acc[j] is the 16 × 8 tile of outputs times the j-th eight rows.
template <int kTiles, bool kShared>
__device__ inline void consume_int4(const TileStack& w, uint4 (&batch)[kBatch],
                                    const Scales& scales, const Run& next, int record, int end,
                                    const Lane& at, const Inputs<kShared> (&x)[kTiles],
                                    float (&acc)[kTiles][4]) {
  constexpr uint32_t kAll = 0xFFFFFFFFu;
  float two_scales[2];
  if (w.scale_dtype == DType::kF32) {
    two_scales[0] = __uint_as_float(scales.scale[0]);
    two_scales[1] = __uint_as_float(scales.scale[1]);
  } else if (w.scale_dtype == DType::kBF16) {
    two_scales[0] = __uint_as_float(scales.scale[0] << 16);
    two_scales[1] = __uint_as_float(scales.scale[0] & 0xFFFF0000u);
  } else {
    const float2 both = __half22float2(*reinterpret_cast<const __half2*>(&scales.scale[0]));
    two_scales[0] = both.x;
    two_scales[1] = both.y;
  }
  const bool has_zeros = w.zeros != nullptr;
  uint32_t mask = 0x000F000Fu, exponent = 0x43004300u;  // in registers: one instruction takes both
  asm volatile("" : "+r"(mask), "+r"(exponent));
  const int base = 64 * record + 16 * at.t;
#pragma unroll
  for (int group = 0; group < kBatch / 2; ++group) {
    if (record + 2 * group >= end) break;
    const int from = group * 8 + at.g;
    const float scale[2] = {__shfl_sync(kAll, two_scales[0], from),
                            __shfl_sync(kAll, two_scales[1], from)};
    uint32_t zero[2] = {0x43084308u, 0x43084308u};  // 128 + zero point, twice
    if (has_zeros) {
      const uint32_t both = __shfl_sync(kAll, scales.zeros, from);
      zero[0] = (0x4300u | (both & 0xFFu)) * 0x00010001u;
      zero[1] = (0x4300u | both >> 8) * 0x00010001u;
    }
    float sum[kTiles][4] = {};
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const uint4 word = batch[2 * group + i];
      request(next, 2 * group + i, batch[2 * group + i]);
      const uint32_t words[4] = {word.x, word.y, word.z, word.w};
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        uint4 b[kTiles];
#pragma unroll
        for (int j = 0; j < kTiles; ++j) b[j] = x[j].load(base + 64 * (2 * group + i) + 8 * half);
#pragma unroll
        for (int s = 0; s < 2; ++s) {
          uint32_t a[4];
#pragma unroll
          for (int p = 0; p < 4; ++p)  // the difference of bf16 integers is exact
            a[p] = bf16x2_subtract(bf16x2_of_codes(words[2 * half + s] >> (4 * p), mask, exponent),
                                   zero[p % 2]);
#pragma unroll
          for (int j = 0; j < kTiles; ++j)
            multiply_add(sum[j], a, s == 0 ? b[j].x : b[j].z, s == 0 ? b[j].y : b[j].w);
        }
      }
    }
#pragma unroll
    for (int j = 0; j < kTiles; ++j)
#pragma unroll
      for (int i = 0; i < 4; ++i) acc[j][i] = fmaf(scale[i / 2], sum[j][i], acc[j][i]);
  }
}

template <int kTiles, bool kShared>
__device__ inline void consume_fp8(uint4 (&batch)[kBatch], const Scales& scales, const Run& next,
                                   int record, int end, const Lane& at,
                                   const Inputs<kShared> (&x)[kTiles], float (&acc)[kTiles][4]) {
#pragma unroll
  for (int block = 0; block < kBatch / 4; ++block) {
    if (record + 4 * block >= end) break;
    const float scale = __uint_as_float(__shfl_sync(0xFFFFFFFFu, scales.scale[0], block));
    float sum[kTiles][4] = {};
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      if (record + 4 * block + i >= end) break;  // k may end inside a block
      const uint4 word = batch[4 * block + i];
      request(next, 4 * block + i, batch[4 * block + i]);
      uint4 b[kTiles];
#pragma unroll
      for (int j = 0; j < kTiles; ++j) b[j] = x[j].load(32 * (record + 4 * block + i) + 8 * at.t);
#pragma unroll
      for (int s = 0; s < 2; ++s) {
        const uint32_t low = s == 0 ? word.x : word.z, high = s == 0 ? word.y : word.w;
        const uint32_t a[4] = {bf16x2_of_e4m3(low), bf16x2_of_e4m3(low >> 16), bf16x2_of_e4m3(high),
                               bf16x2_of_e4m3(high >> 16)};
#pragma unroll
        for (int j = 0; j < kTiles; ++j)
          multiply_add(sum[j], a, s == 0 ? b[j].x : b[j].z, s == 0 ? b[j].y : b[j].w);
      }
    }
#pragma unroll
    for (int j = 0; j < kTiles; ++j)
#pragma unroll
      for (int i = 0; i < 4; ++i) acc[j][i] = fmaf(scale, sum[j][i], acc[j][i]);
  }
}

template <int kTiles, bool kShared>
__device__ inline void consume_bf16(uint4 (&batch)[kBatch], const Run& next, int record, int end,
                                    const Lane& at, const Inputs<kShared> (&x)[kTiles],
                                    float (&acc)[kTiles][4]) {
#pragma unroll
  for (int block = 0; block < kBatch / 4; ++block) {
    if (record + 4 * block >= end) break;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      uint4 b[kTiles];
#pragma unroll
      for (int j = 0; j < kTiles; ++j)
        b[j] = x[j].load(64 * (record / 4 + block) + 16 * at.t + 8 * half);
#pragma unroll
      for (int s = 0; s < 2; ++s) {
        const uint4 word = batch[4 * block + 2 * half + s];
        request(next, 4 * block + 2 * half + s, batch[4 * block + 2 * half + s]);
        const uint32_t a[4] = {word.x, word.y, word.z, word.w};
#pragma unroll
        for (int j = 0; j < kTiles; ++j)
          multiply_add(acc[j], a, s == 0 ? b[j].x : b[j].z, s == 0 ? b[j].y : b[j].w);
      }
    }
  }
}

// Adds the products of records [record, end) of a batch, and puts the next one in their place.
template <int kTiles, bool kShared>
__device__ inline void consume(const TileStack& w, uint4 (&batch)[kBatch], const Scales& scales,
                               const Run& next, int record, int end, const Lane& at,
                               const Inputs<kShared> (&x)[kTiles], float (&acc)[kTiles][4]) {
  switch (w.format) {
    case WeightFormat::kInt4Group128:
      consume_int4<kTiles, kShared>(w, batch, scales, next, record, end, at, x, acc);
      break;
    case WeightFormat::kFp8Block128:
      consume_fp8<kTiles, kShared>(batch, scales, next, record, end, at, x, acc);
      break;
    default:
      consume_bf16<kTiles, kShared>(batch, next, record, end, at, x, acc);
  }
  // A short batch has not come by all places.
  const int used = max(min(end - record, kBatch), 0);
  if (used < kBatch) {
#pragma unroll
    for (int i = 0; i < kBatch; ++i)
      if (i >= used) request(next, i, batch[i]);
  }
}

}  // namespace pewter::cuda
