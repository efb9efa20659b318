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

// Copies that were begun keep what they saw, whatever is copied and overwritten meanwhile: small
// ones, larger ones, and more than have a place.
TEST(SmallCopies, OnesThatWereBegunKeepWhatTheySaw) {
  const Result<std::shared_ptr<CudaDevice>> device = CudaDevice::make();
  if (!device) GTEST_SKIP() << device.error().message;
  constexpr size_t kPiece = size_t{200} << 10;
  const Buffer memory = (*device)->allocate(kPiece).value();
  for (const std::vector<size_t>& sizes :
       {std::vector<size_t>{40}, {40'000}, {100'000}, {8, 30'000, 2000, 50'000, 12, 3000, 20}}) {
    std::vector<std::vector<std::byte>> got;
    std::vector<HostCopy> copies;
    for (const size_t size : sizes) got.emplace_back(size);
    const auto fill = [&](unsigned value) {
      const std::vector<std::byte> all(kPiece, static_cast<std::byte>(value));
      (*device)->copy_to_device(memory.data(), all);
    };
    for (size_t i = 0; i < sizes.size(); ++i) {
      fill(static_cast<unsigned>(i) + 1);
      copies.push_back((*device)->begin_copy_to_host(got[i], memory.data()));
    }
    for (unsigned i = 0; i < 16; ++i) fill(100 + i);  // three times the ring of what is sent
    for (size_t i = 0; i < sizes.size(); ++i) {
      (*device)->finish(copies[i]);
      EXPECT_EQ(got[i], std::vector<std::byte>(sizes[i], static_cast<std::byte>(i + 1))) << i;
    }
  }
}

}  // namespace
}  // namespace pewter
