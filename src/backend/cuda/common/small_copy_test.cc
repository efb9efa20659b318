// Copies to the GPU and back, on both sides of the size up to which kernels make them.

#include "backend/cuda/common/small_copy.h"

#include <gtest/gtest.h>

#include <vector>

#include "backend/cuda/cuda_device.h"

namespace pewter {
namespace {

TEST(SmallCopies, ArriveWhateverTheirSizeAndPlace) {
  const Result<std::shared_ptr<CudaDevice>> device = CudaDevice::make();
  if (!device) GTEST_SKIP() << device.error().message;
  constexpr size_t kMost = cuda::kMostSmallBytes, kRoom = 4 * kMost;
  const Buffer memory = (*device)->allocate(kRoom).value();
  unsigned next = 1;
  for (const size_t size :
       {size_t{1}, size_t{4}, size_t{6}, size_t{500}, kMost - 4, kMost, kMost + 4, 3 * kMost})
    for (const size_t place : {size_t{0}, size_t{2}, size_t{8}}) {
      std::vector<std::byte> sent(kRoom), back(kRoom), part(size);
      for (std::byte& b : sent) b = static_cast<std::byte>(next = next * 1664525 + 1013904223);
      (*device)->copy_to_device(memory.data(), sent);
      for (size_t i = 0; i < size; ++i) sent[place + i] = part[i] = static_cast<std::byte>(i * 7);
      (*device)->copy_to_device(memory.data() + place, part);
      (*device)->copy_to_host(back, memory.data());
      EXPECT_EQ(back, sent) << size << " bytes at " << place;
      part.assign(size, std::byte{});
      (*device)->copy_to_host(part, memory.data() + place);
      EXPECT_TRUE(std::equal(part.begin(), part.end(), sent.begin() + static_cast<int>(place)))
          << size << " bytes from " << place;
    }
}

}  // namespace
}  // namespace pewter
