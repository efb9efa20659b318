// What DeviceOps is there to see, on an Ops with faults. It needs no GPU: the CPU's device will do.

#include "ops/device_ops.h"

#include <gtest/gtest-spi.h>
#include <gtest/gtest.h>

#include "backend/cpu/cpu_device.h"
#include "backend/cpu/reference/reference_ops.h"
#include "ops/op_rig.h"

namespace pewter::test {
namespace {

enum class Fault { kNone, kWritesBeside, kChangesItsInput, kDependsOnTheRun, kWritesTooLittle };

class FaultyOps final : public ReferenceOps {
 public:
  explicit FaultyOps(Fault fault) : fault_(fault) {}
  void copy(const CopyArgs& args) override {
    const int64_t count = args.to.elements();
    auto *from = args.from.data_as<float>(), *to = args.to.data_as<float>();
    std::copy_n(from, fault_ == Fault::kWritesTooLittle ? count - 1 : count, to);
    if (fault_ == Fault::kWritesBeside) to[count] = 1;
    if (fault_ == Fault::kChangesItsInput) from[0] += 1;
    if (fault_ == Fault::kDependsOnTheRun) to[0] += static_cast<float>(runs_++);
  }

 private:
  Fault fault_;
  int runs_ = 0;
};

Floats copy_with(Fault fault) {
  Backend backend{.name = "faulty",
                  .device = std::make_shared<CpuDevice>(CpuDevice::Layout::kCanonical),
                  .ops = std::make_unique<FaultyOps>(fault)};
  DeviceOps ops(std::move(backend));
  const Tensor from = Tensor::of(DType::kF32, {3}, {1, 2, 3}), to = Tensor::zeros(DType::kF32, {3});
  ops.copy({.from = from.view, .to = to.view});
  return to.floats();
}

TEST(DeviceOps, CarriesThereAndBack) { EXPECT_EQ(copy_with(Fault::kNone), (Floats{1, 2, 3})); }

TEST(DeviceOps, SeesWritesBesideTheOutputs) {
  EXPECT_NONFATAL_FAILURE(copy_with(Fault::kWritesBeside), "is no output, changed");
}

TEST(DeviceOps, SeesChangedInputs) {
  EXPECT_NONFATAL_FAILURE(copy_with(Fault::kChangesItsInput), "is no output, changed");
}

TEST(DeviceOps, SeesThatAReplayDiffers) {
  EXPECT_NONFATAL_FAILURE(copy_with(Fault::kDependsOnTheRun), "replayed, it leaves other bits");
}

TEST(DeviceOps, LeavesNothingWhereNothingWasWritten) {
  EXPECT_TRUE(std::isnan(copy_with(Fault::kWritesTooLittle)[2]));
}

}  // namespace
}  // namespace pewter::test
