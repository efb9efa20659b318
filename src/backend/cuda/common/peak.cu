// Sixteen warps a multiprocessor, eight independent sums a warp: enough to hide the latency of the
// instruction, and nothing but the instruction.

#include "backend/cuda/common/kernel.cuh"
#include "backend/cuda/common/matrix.cuh"
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
    for (int i = 0; i < kSums; ++i) multiply_add(d[i], a, b[0], b[1]);
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
