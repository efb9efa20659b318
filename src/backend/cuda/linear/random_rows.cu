// One thread makes eight bytes of values, or one scale. Bound by integer multiplies; a few hundred
// gigabytes a second, which is enough: packing follows.

#include "backend/cuda/common/kernel.cuh"
#include "backend/cuda/linear/random_rows.h"

namespace pewter::cuda {
namespace {

struct RandomArgs {
  WeightFormat format;
  float deviation;
  uint64_t seed;
  DType scale_dtype;
  uint8_t* to;
  int64_t count;  // bytes of values, or scales
};

__device__ int64_t thread_index() {
  return blockIdx.x * static_cast<int64_t>(blockDim.x) + threadIdx.x;
}

__global__ void random_values_kernel(RandomArgs a) {
  const int64_t word = thread_index(), at = 8 * word;
  if (at >= a.count) return;
  const uint64_t values =
      random_values(a.format, a.deviation, random_bits(a.seed, static_cast<uint64_t>(word)));
  if (at + 8 <= a.count) {
    *reinterpret_cast<uint64_t*>(a.to + at) = values;
    return;
  }
  for (int64_t i = at; i < a.count; ++i) a.to[i] = static_cast<uint8_t>(values >> (8 * (i - at)));
}

__global__ void random_scales_kernel(RandomArgs a) {
  const int64_t i = thread_index();
  if (i >= a.count) return;
  const uint32_t bits = scale_bits(
      a.scale_dtype,
      random_scale(a.format, a.deviation, random_bits(a.seed, static_cast<uint64_t>(i))));
  if (a.scale_dtype == DType::kF32)
    reinterpret_cast<uint32_t*>(a.to)[i] = bits;
  else
    reinterpret_cast<uint16_t*>(a.to)[i] = static_cast<uint16_t>(bits);
}

}  // namespace

void random_rows(cudaStream_t stream, const WeightMatrix& rows, const RandomRows& random) {
  CHECK(rows.layout == WeightMatrix::kCanonical && !rows.zeros.defined() &&
            rows.format != WeightFormat::kF16,
        "random rows of ", weight_format_name(rows.format));
  RandomArgs args{.format = rows.format,
                  .deviation = random.deviation,
                  .seed = random.seed,
                  .scale_dtype = DType::kF32,
                  .to = reinterpret_cast<uint8_t*>(rows.values.data()),
                  .count = rows.values.bytes()};
  const auto grid = [](int64_t threads) { return static_cast<unsigned>((threads + 255) / 256); };
  random_values_kernel<<<grid((args.count + 7) / 8), 256, 0, stream>>>(args);
  CUDA_CHECK(cudaGetLastError());
  if (!rows.scales.defined()) return;
  args.seed = scale_seed(random.seed);
  args.scale_dtype = rows.scales.dtype();
  args.to = reinterpret_cast<uint8_t*>(rows.scales.data());
  args.count = rows.scales.elements();
  random_scales_kernel<<<grid(args.count), 256, 0, stream>>>(args);
  CUDA_CHECK(cudaGetLastError());
}

}  // namespace pewter::cuda
