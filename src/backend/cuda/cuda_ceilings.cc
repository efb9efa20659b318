#include "backend/cuda/cuda_ceilings.h"

#include <algorithm>

#include "backend/cuda/common/cuda_check.h"
#include "backend/cuda/common/peak.h"
#include "backend/cuda/common/read_all.h"

namespace pewter {
namespace {

// Seconds of the fastest of a few runs, after one that does not count.
template <typename Work>
double best_seconds(cudaStream_t stream, const Work& work) {
  cudaEvent_t begin = nullptr, end = nullptr;
  CUDA_CHECK(cudaEventCreate(&begin));
  CUDA_CHECK(cudaEventCreate(&end));
  double best = 0;
  for (int i = 0; i < 6; ++i) {
    CUDA_CHECK(cudaEventRecord(begin, stream));
    work();
    CUDA_CHECK(cudaEventRecord(end, stream));
    CUDA_CHECK(cudaEventSynchronize(end));
    float milliseconds = 0;
    CUDA_CHECK(cudaEventElapsedTime(&milliseconds, begin, end));
    const double seconds = static_cast<double>(milliseconds) / 1e3;
    if (i > 0 && (best == 0 || seconds < best)) best = seconds;
  }
  CUDA_CHECK(cudaEventDestroy(begin));
  CUDA_CHECK(cudaEventDestroy(end));
  return best;
}

}  // namespace

Result<std::unique_ptr<Ceilings>> CudaCeilings::make(std::shared_ptr<CudaDevice> device) {
  std::unique_ptr<CudaCeilings> ceilings(new CudaCeilings());
  TRY_ASSIGN(ceilings->buffer_, device->allocate(kBufferBytes));
  ceilings->device_ = std::move(device);
  return std::unique_ptr<Ceilings>(std::move(ceilings));
}

std::string CudaCeilings::processors() const {
  return str_cat(device_->gpu().multiprocessors, " multiprocessors of ", device_->description());
}

double CudaCeilings::bandwidth(Traffic traffic) {
  const auto half = static_cast<size_t>(kBufferBytes / 2);
  const double seconds = best_seconds(device_->stream(), [&] {
    if (traffic == Traffic::kRead)
      return cuda::read_all(device_->stream(), device_->gpu().multiprocessors, buffer_.data(),
                            kBufferBytes);
    CUDA_CHECK(cudaMemcpyAsync(buffer_.data() + half, buffer_.data(), half,
                               cudaMemcpyDeviceToDevice, device_->stream()));
  });
  return static_cast<double>(kBufferBytes) / seconds;
}

ArithmeticCeiling CudaCeilings::arithmetic(Arithmetic) {
  double operations = 0;
  const double seconds = best_seconds(device_->stream(), [&] {
    operations = cuda::matrix_peak(device_->stream(), device_->gpu().multiprocessors,
                                   reinterpret_cast<float*>(buffer_.data()));
  });
  return {.flops_per_second = operations / seconds, .instruction = "mma.m16n8k16.bf16"};
}

}  // namespace pewter
