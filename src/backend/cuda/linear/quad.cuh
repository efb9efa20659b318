// Blocks of int4 times one row. Matrix instructions have eight columns, of which a row takes two,
// its high bytes and its low ones (coded_rows.cuh). So the columns are four of its groups of 128
// inputs, and the four blocks of k that meet them (a *quad*) each find their sums in other lanes,
// which scale them all at once: half as many instructions as one block after another
// (fragments.cuh), whose products these are bit for bit.
#pragma once

#include "backend/cuda/common/bulk.cuh"
#include "backend/cuda/linear/fragments.cuh"

namespace pewter::cuda {

constexpr int kQuad = 4;  // blocks
constexpr int kQuadBytes =
    kQuad * static_cast<int>(block_shape(WeightFormat::kInt4Group128, DType::kBF16, false).bytes());

// Four groups of the row as a lane multiplies them: its column is of group g / 2, of high bytes or
// of low ones.
struct QuadCodes {
  uint32_t word[4][2];  // operand b of a step; step 2r + h: inputs 64r + 8t + 4h … and 32 behind
  float scale;          // of the group

  // x: inputs 32s + 8t … 32s + 8t + 7 of the group for each s.
  __device__ void code(const uint4 (&x)[4], const Lane& me) {
    uint32_t pair = 0;
#pragma unroll
    for (const uint4& eight : x) {
      pair = __vmaxu2(pair, __vmaxu2(eight.x & 0x7FFF7FFFu, eight.y & 0x7FFF7FFFu));
      pair = __vmaxu2(pair, __vmaxu2(eight.z & 0x7FFF7FFFu, eight.w & 0x7FFF7FFFu));
    }
#pragma unroll
    for (int offset = 1; offset < 4; offset *= 2)
      pair = __vmaxu2(pair, __shfl_xor_sync(0xFFFFFFFFu, pair, offset));
    const GroupPower power(max(pair & 0xFFFFu, pair >> 16));
    scale = power.scale();
    // A high byte is that of the integer and 128 (FourCodes).
    const bool high = me.g % 2 == 0;
    const float magic = high ? 12582912.0f + 128.0f : 12582912.0f;
    const uint32_t bytes = high ? 0x0051 : 0x0040;
    const auto integers = [&](uint32_t two) {
      const float first = fmaf(__uint_as_float(two << 16), power.to_integer(), magic);
      const float second = fmaf(__uint_as_float(two & 0xFFFF0000u), power.to_integer(), magic);
      return __byte_perm(__float_as_uint(first), __float_as_uint(second), bytes);
    };
#pragma unroll
    for (int s = 0; s < 4; ++s) {
      word[s / 2 * 2][s % 2] = __byte_perm(integers(x[s].x), integers(x[s].y), 0x5410);
      word[s / 2 * 2 + 1][s % 2] = __byte_perm(integers(x[s].z), integers(x[s].w), 0x5410);
    }
  }
};

// Four groups of a coded row (coded_rows.cuh): what columns as above multiply by, and of a lane's
// own block, number t, what scales it. Group `first` and three that follow, `step` apart.
struct LoadedQuad {
  static constexpr bool kEights = true;
  uint32_t word[4][2];  // of step s: inputs 32s + 8t …, eight of them
  GroupScale own;

  // From memory, through the L2 cache alone, since others may just have written it.
  __device__ void load(const uint8_t* row, int width, int first, int step, const Lane& me) {
    const uint8_t* const from = row + place(first, step, me);
#pragma unroll
    for (int s = 0; s < 4; ++s) {
      const uint2 eight = __ldcg(reinterpret_cast<const uint2*>(from + 64 * s));
      word[s][0] = eight.x, word[s][1] = eight.y;
    }
    const uint2 scale =
        __ldcg(reinterpret_cast<const uint2*>(row + 2 * width + 8 * (first + me.t * step)));
    own = {__uint_as_float(scale.x), static_cast<int32_t>(scale.y)};
  }
  // From shared memory.
  __device__ void load(uint32_t row, int width, int first, int step, const Lane& me) {
    const uint32_t from = row + place(first, step, me);
#pragma unroll
    for (int s = 0; s < 4; ++s) {
      const uint2 eight = load_shared8(from + 64 * s);
      word[s][0] = eight.x, word[s][1] = eight.y;
    }
    own = load_shared_scale(row + 2 * width + 8 * (first + me.t * step));
  }
  static __device__ int place(int first, int step, const Lane& me) {
    return 256 * (first + me.g / 2 * step) + 16 * me.t + (me.g % 2 == 0 ? 0 : 8);
  }
};

// The same of groups that a warp codes itself, or of fewer: then the last of the quad's, and the
// others repeat the first; their sums are nobody's.
struct CodedQuad {
  static constexpr bool kEights = false;
  uint32_t word[4][2];  // as QuadCodes'
  GroupScale own;

  // Codes groups of which a lane has inputs 4 · lane … as bf16. place: 256 · kBlocks bytes of the
  // warp's shared memory, aligned to 16. The bits are code_groups'.
  template <int kBlocks>
  __device__ void code(const uint2 (&inputs)[kBlocks], uint8_t* place, const Lane& me) {
    constexpr uint32_t kAll = 0xFFFFFFFFu;
    constexpr int kFirst = kQuad - kBlocks;
    uint32_t largest[kBlocks];
#pragma unroll
    for (int i = 0; i < kBlocks; ++i) {
      const uint32_t pair = __vmaxu2(inputs[i].x & 0x7FFF7FFFu, inputs[i].y & 0x7FFF7FFFu);
      largest[i] = __reduce_max_sync(kAll, max(pair & 0xFFFFu, pair >> 16));
    }
    // A group's high bytes, then its low ones, in the order of the words that a lane wants: its
    // inputs are those of step 2r + h, half s, for lane t. Pieces of 16 bytes of low bytes change
    // places by twos, so that eight lanes meet all banks.
    const int s = me.lane / 8, t = me.lane / 2 % 4, h = me.lane % 2;
    const int at = 32 * t + 16 * (s / 2) + 8 * h + 4 * (s % 2);
    int32_t sum[kBlocks];
#pragma unroll
    for (int i = 0; i < kBlocks; ++i) {
      const FourCodes four(inputs[i].x, inputs[i].y, GroupPower(largest[i]).to_integer());
      *reinterpret_cast<uint32_t*>(place + 256 * i + at) = four.high;
      *reinterpret_cast<uint32_t*>(place + 256 * i + 128 + (at ^ 16)) = four.low;
      sum[i] = __reduce_add_sync(kAll, four.sum);
    }
    uint32_t own_largest = largest[0];
    own.sum = sum[0];
#pragma unroll
    for (int i = 1; i < kBlocks; ++i)
      if (me.t == kFirst + i) own_largest = largest[i], own.sum = sum[i];
    own.scale = GroupPower(own_largest).scale();
    __syncwarp();
    const uint32_t from = shared_address(place) + 256 * max(me.g / 2 - kFirst, 0) + 32 * me.t +
                          (me.g % 2 == 0 ? 0 : 128 + 16);
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      const uint4 four = load_shared16(from + r * (me.g % 2 == 0 ? 16 : -16));
      word[2 * r][0] = four.x, word[2 * r][1] = four.y;
      word[2 * r + 1][0] = four.z, word[2 * r + 1][1] = four.w;
    }
  }
};

// What a lane's block of a quad adds to the sums of outputs g and g + 8: factor · product.
struct QuadProducts {
  float factor[2], product[2];
};

// The last kBlocks of a quad's blocks, the first of them at shared address `at` and the others
// every `step` bytes behind, times x: integer sums, and beside(step of k) between two steps.
// kEights: of x a lane has eight inputs side by side for each step, and not four and four.
template <int kBlocks, bool kEights, typename Beside>
__device__ inline void multiply_quad(int32_t (&part)[kBlocks][4], uint32_t at, int step,
                                     const uint32_t (&x)[4][2], const Lane& me,
                                     const Beside& beside) {
  // Chains of instructions in turn, so that none waits for the one before it.
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    uint4 words[kBlocks];
#pragma unroll
    for (int i = 0; i < kBlocks; ++i)
      words[i] = load_shared16(at + i * step + r * kRecordBytes + me.lane * 16);
#pragma unroll
    for (int h = 0; h < 2; ++h) {
#pragma unroll
      for (int i = 0; i < kBlocks; ++i) {
        const uint4& word = words[i];
        const uint32_t four[2][2] = {{word.x, word.y}, {word.z, word.w}};
        const uint32_t first = kEights ? four[h][0] : four[0][h],
                       second = kEights ? four[h][1] : four[1][h];
        const uint32_t codes[4] = {first & 0x0F0F0F0Fu, first, second & 0x0F0F0F0Fu, second};
        const uint32_t(&b)[2] = x[2 * r + h];
        if (r == 0 && h == 0)
          multiply_unsigned(part[i], codes, b[0], b[1]);
        else
          multiply_add_unsigned(part[i], codes, b[0], b[1]);
      }
      beside(2 * r + h);
    }
  }
}

// What becomes of those sums in the lane whose block it is. row: the group's.
template <int kBlocks>
__device__ inline QuadProducts scale_quad(const int32_t (&part)[kBlocks][4], bool is_half,
                                          uint32_t at, int step, const GroupScale& row,
                                          const Lane& me) {
  static_assert(kBlocks >= 2 && kBlocks <= kQuad);
  constexpr int kFirst = kQuad - kBlocks;  // the quad's blocks before it are none
  const uint32_t scales = load_shared4(at + (kFirst == 0 ? me.t : max(me.t - kFirst, 0)) * step +
                                       2 * kRecordBytes + 4 * me.g);
  float2 scale = __half22float2(*reinterpret_cast<const __half2*>(&scales));
  if (!is_half) scale = {__uint_as_float(scales << 16), __uint_as_float(scales & 0xFFFF0000u)};
  int32_t own[4];
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const int32_t high = me.t % 2 == 0 ? part[kBlocks - 2][i] : part[kBlocks - 1][i];
    if constexpr (kBlocks == 2) {
      own[i] = high;
    } else {
      const int32_t low = me.t % 2 == 0 ? part[0][i] : part[kBlocks - 3][i];
      own[i] = me.t < 2 ? low : high;
    }
  }
  // Codes of outputs g + 8, the high halves of bytes, have stayed beside those of outputs g: their
  // sums, below 2³⁰, are sixteen times theirs and once those, which are taken away again.
  const int32_t first = (own[0] << 8) + own[1], both = (own[2] << 8) + own[3];
  return {{scale.x * row.scale, scale.y * 0.0625f * row.scale},
          {static_cast<float>(first - 8 * row.sum),
           static_cast<float>(both - first - 8 * 16 * row.sum)}};
}

// Four blocks side by side times groups that the kernel has coded itself: a lane gets what outputs
// g and g + 8 of block t add to their sums.
__device__ inline float2 multiply_quad(bool is_half, uint32_t at, const QuadCodes& x,
                                       const Lane& me) {
  constexpr uint32_t kOnes[4] = {0x01010101u, 0x01010101u, 0x01010101u, 0x01010101u};
  constexpr int kBytes = kQuadBytes / kQuad;
  int32_t part[kQuad][4], row[4];  // the row's: sums of its integers
  multiply_quad<kQuad, false>(part, at, kBytes, x.word, me, [&](int step) {
    const uint32_t(&b)[2] = x.word[step];
    if (step == 0)
      multiply_unsigned(row, kOnes, b[0], b[1]);
    else
      multiply_add_unsigned(row, kOnes, b[0], b[1]);
  });
  const float by = __shfl_sync(0xFFFFFFFFu, x.scale, 8 * me.t);  // of group t
  const QuadProducts own =
      scale_quad<kQuad>(part, is_half, at, kBytes, {by, (row[0] << 8) + row[1]}, me);
  return {own.factor[0] * own.product[0], own.factor[1] * own.product[1]};
}

// sums += the blocks' products in order, in lanes t = 3; before that all lanes t have the sums.
template <int kBlocks>
__device__ inline void add_quad(const QuadProducts& own, float (&sums)[2]) {
#pragma unroll
  for (int i = 0; i < kBlocks; ++i)
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      if (i > 0) sums[half] = __shfl_up_sync(0xFFFFFFFFu, sums[half], 1);
      sums[half] = fmaf(own.factor[half], own.product[half], sums[half]);
    }
}

// sums += kBlocks blocks of a quad, as above, times the row.
template <int kBlocks, typename Quad>
__device__ inline void multiply_quad(bool is_half, uint32_t at, int step, const Quad& x,
                                     const Lane& me, float (&sums)[2]) {
  int32_t part[kBlocks][4];
  multiply_quad<kBlocks, Quad::kEights>(part, at, step, x.word, me, [](int) {});
  add_quad<kBlocks>(scale_quad<kBlocks>(part, is_half, at, step, x.own, me), sums);
}

}  // namespace pewter::cuda
