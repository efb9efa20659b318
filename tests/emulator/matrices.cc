// The matrix instructions.
#include <cuda_runtime.h>

#include "emulator/half.h"

namespace emulator::ptx {
namespace {

// A register holds kEach inputs. With lane = 4 · g + t: of a, rows g (registers 0 and 2) and g + 8;
// of b, column g; of d, rows g and g + 8 at columns 2t and 2t + 1.
template <typename Sum, typename Exact, int kEach, typename DecodeA, typename DecodeB>
MatrixSums<Sum> multiply(const MatrixLane<Sum>& own) {
  return together<MatrixSums<Sum>>(
      0xFFFFFFFFu, own,
      [](const MatrixLane<Sum>* const(&in)[kWarp], MatrixSums<Sum>* const(&out)[kWarp]) {
        constexpr int kDepth = 8 * kEach, kBits = 32 / kEach;
        constexpr size_t kInputs = kDepth;
        Exact a[16][kInputs], b[kInputs][8];
        for (int i = 0; i < kWarp; ++i)
          for (int e = 0; e < kEach; ++e) {
            const int g = i / 4, first = i % 4 * kEach + e;
            for (int r = 0; r < 4; ++r)
              a[g + 8 * (r % 2)][first + r / 2 * 4 * kEach] = DecodeA{}(in[i]->a[r] >> (kBits * e));
            for (int r = 0; r < 2; ++r)
              b[first + r * 4 * kEach][g] = DecodeB{}(in[i]->b[r] >> (kBits * e));
          }
        for (int row = 0; row < 16; ++row) {
          Exact sums[8] = {};
          for (int j = 0; j < kDepth; ++j)
            for (int column = 0; column < 8; ++column) sums[column] += a[row][j] * b[j][column];
          for (int column = 0; column < 8; ++column) {
            const int lane_of = row % 8 * 4 + column / 2, r = row / 8 * 2 + column % 2;
            if constexpr (std::is_same_v<Sum, float>)
              out[lane_of]->d[r] =
                  static_cast<float>(sums[column] + static_cast<double>(in[lane_of]->c[r]));
            else
              out[lane_of]->d[r] = static_cast<int32_t>(sums[column]) + in[lane_of]->c[r];
          }
        }
      });
}

// Products and sums of floats are exact in doubles but for the last bits of a sum, those of bytes
// in floats.
struct OfBf16 {
  double operator()(uint32_t bits) const {
    return static_cast<double>(std::bit_cast<float>(bits << 16));
  }
};
struct OfHalf {
  double operator()(uint32_t bits) const {
    return static_cast<double>(half_value(static_cast<uint16_t>(bits)));
  }
};
struct OfSigned {
  float operator()(uint32_t bits) const { return static_cast<int8_t>(bits); }
};
struct OfUnsigned {
  float operator()(uint32_t bits) const { return static_cast<uint8_t>(bits); }
};

}  // namespace

const MatrixProduct<float> mma_sync_aligned_m16n8k16_row_col_f32_bf16_bf16_f32{
    multiply<float, double, 2, OfBf16, OfBf16>};
const MatrixProduct<float> mma_sync_aligned_m16n8k16_row_col_f32_f16_f16_f32{
    multiply<float, double, 2, OfHalf, OfHalf>};
const MatrixProduct<int32_t> mma_sync_aligned_m16n8k32_row_col_s32_s8_s8_s32{
    multiply<int32_t, float, 4, OfSigned, OfSigned>};
const MatrixProduct<int32_t> mma_sync_aligned_m16n8k32_row_col_s32_u8_s8_s32{
    multiply<int32_t, float, 4, OfUnsigned, OfSigned>};

}  // namespace emulator::ptx
