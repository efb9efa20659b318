// The CPU's ceilings: a plain read of memory by all threads, and chains of the widest
// multiply-accumulate instruction this machine has. Matrix units (AMX, SME) are not counted: the
// ceilings are those of the vector instructions kernels for few rows are made of.
#pragma once

#include "backend/ceilings.h"
#include "base/str_cat.h"
#include "base/thread_pool.h"
#include "tensor/buffer.h"

namespace pewter {

class CpuCeilings final : public Ceilings {
 public:
  explicit CpuCeilings(int threads);  // 0: all this process may use

  int threads() const override { return pool_.threads(); }
  std::string processors() const override {
    return str_cat(pool_.threads(), pool_.threads() == 1 ? " thread" : " threads");
  }
  int64_t buffer_bytes() const override { return buffer_bytes_; }
  Traffic usual_traffic() const override { return Traffic::kRead; }
  double bandwidth(Traffic traffic) override;
  ArithmeticCeiling arithmetic(Arithmetic kind) override;

 private:
  ThreadPool pool_;
  int64_t buffer_bytes_;
  Buffer buffer_;
};

}  // namespace pewter
