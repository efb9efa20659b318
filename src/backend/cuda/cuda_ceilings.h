// The GPU's ceilings: a copy of memory to memory counted as bytes read and written, a read by all
// multiprocessors, and chains of the bf16 matrix instruction kernels are made of.
#pragma once

#include "backend/ceilings.h"
#include "backend/cuda/cuda_device.h"

namespace pewter {

class CudaCeilings final : public Ceilings {
 public:
  // Error: kResourceExhausted.
  static Result<std::unique_ptr<Ceilings>> make(std::shared_ptr<CudaDevice> device);

  int threads() const override { return device_->gpu().multiprocessors; }
  int64_t buffer_bytes() const override { return kBufferBytes; }
  std::string processors() const override;
  Traffic usual_traffic() const override { return Traffic::kCopy; }
  double bandwidth(Traffic traffic) override;
  ArithmeticCeiling arithmetic(Arithmetic kind) override;

 private:
  static constexpr int64_t kBufferBytes = int64_t{4} << 30;
  CudaCeilings() = default;
  std::shared_ptr<CudaDevice> device_;
  Buffer buffer_;
};

}  // namespace pewter
