// Sixteen warps a multiprocessor, eight independent sums a warp: enough to hide the latency of the
// instruction, and nothing but the instruction.

#include "backend/cuda/common/kernel.cuh"
#include "backend/cuda/common/peak.h"

namespace pewter::cuda {
namespace {

constexpr int kSums = 8, kRounds = 20000, kThreads = 512;

__global__ void __launch_bounds__(kThreads) peak_kernel(float* out) {
  float d[kSums][4] = {};
  // Random bits with the exponents of numbers around one, different in every lane.
  uint32_t a[4], b[2];
  for (int i = 0; i < 4; ++i)
    a[i] = 0x3F803F80u ^ (threadIdx.x * 0x9E3779B9u + i * 0x85EBCA6Bu) % 0x007F007Fu;
  for (int i = 0; i < 2; ++i) b[i] = a[i] ^ 0x80000000u;
  for (int round = 0; round < kRounds; ++round)
#pragma unroll
    for (int i = 0; i < kSums; ++i)
      asm volatile(
          "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, "
          "{%8, %9}, {%0, %1, %2, %3};"
          : "+f"(d[i][0]), "+f"(d[i][1]), "+f"(d[i][2]), "+f"(d[i][3])
          : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
  float sum = 0;
  for (int i = 0; i < kSums; ++i) sum += d[i][0] + d[i][1] + d[i][2] + d[i][3];
  if (sum == 1234.5f) *out = sum;  // so that nothing is left out
}

}  // namespace

double matrix_peak(cudaStream_t stream, int multiprocessors, float* out) {
  launch(stream, dim3(static_cast<unsigned>(multiprocessors)), dim3(kThreads), 0, peak_kernel, out);
  return 2.0 * 16 * 8 * 16 * kSums * kRounds * (kThreads / kWarp) * multiprocessors;
}

}  // namespace pewter::cuda
