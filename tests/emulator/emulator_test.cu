// Kernels with a fault, which the emulator must show; their likes without one, which it must leave
// in peace. A fault that only some orders show is shown by one of many.

#include <gtest/gtest.h>

#include <functional>
#include <vector>

#include "backend/cuda/common/arrival.cuh"
#include "backend/cuda/common/bulk.cuh"
#include "backend/cuda/common/grid_sync.cuh"
#include "backend/cuda/common/kernel.cuh"
#include "backend/cuda/common/matrix.cuh"

namespace pewter::cuda {
namespace {

constexpr int kThreads = 96, kBlocks = 8, kTries = 200;

class Emulator : public testing::Test {
 protected:
  void SetUp() override {
    CUDA_CHECK(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking));
    CUDA_CHECK(cudaMalloc(&memory_, kWords * sizeof(int32_t)));
    words_ = static_cast<int32_t*>(memory_);  // the host may look at an emulated GPU's memory
  }
  void TearDown() override {
    CUDA_CHECK(cudaFree(memory_));
    CUDA_CHECK(cudaStreamDestroy(stream_));
  }
  void clear() { CUDA_CHECK(cudaMemsetAsync(memory_, 0, kWords * sizeof(int32_t), stream_)); }
  void finish() { CUDA_CHECK(cudaStreamSynchronize(stream_)); }
  // In how many of many orders a kernel or two leave what is not `want` in some of the words.
  int wrong(const std::function<void()>& enqueue, const std::function<int32_t(int)>& want,
            int count = kThreads * kBlocks) {
    int times = 0;
    for (int i = 0; i < kTries; ++i) {
      clear();
      enqueue();
      finish();
      bool is_wrong = false;
      for (int word = 0; word < count; ++word) is_wrong = is_wrong || words_[word] != want(word);
      times += is_wrong;
    }
    return times;
  }

  static constexpr size_t kWords = 4096;
  cudaStream_t stream_ = nullptr;
  void* memory_ = nullptr;
  int32_t* words_ = nullptr;
};

template <bool kSync>
__global__ void reverse_kernel(int32_t* out) {
  __shared__ int32_t memory[kThreads];
  const int i = static_cast<int>(threadIdx.x);
  memory[i] = i;
  if (kSync) __syncthreads();
  out[static_cast<int>(blockIdx.x) * kThreads + i] = memory[kThreads - 1 - i];
}
TEST_F(Emulator, ShowsAMissingBarrier) {
  const auto reversed = [](int word) { return kThreads - 1 - word % kThreads; };
  const dim3 blocks(kBlocks), threads(kThreads);
  EXPECT_EQ(
      wrong([&] { launch(stream_, blocks, threads, 0, reverse_kernel<true>, words_); }, reversed),
      0);
  EXPECT_GT(
      wrong([&] { launch(stream_, blocks, threads, 0, reverse_kernel<false>, words_); }, reversed),
      kTries / 2);
}

__global__ void write_kernel(int32_t* out) {
  start_next();
  wait_for_inputs();
  out[blockIdx.x * kThreads + threadIdx.x] = 1;
}
template <bool kWait>
__global__ void double_kernel(int32_t* out) {
  if (kWait) wait_for_inputs();
  out[blockIdx.x * kThreads + threadIdx.x] *= 2;
}
TEST_F(Emulator, ShowsAMissingWaitForInputs) {
  const auto run = [&](auto* kernel) {
    launch(stream_, dim3(kBlocks), dim3(kThreads), 0, write_kernel, words_);
    launch(stream_, dim3(kBlocks), dim3(kThreads), 0, kernel, words_);
  };
  const auto two = [](int) { return 2; };
  EXPECT_EQ(wrong([&] { run(double_kernel<true>); }, two), 0);
  if (PEWTER_EMULATED_ARCHITECTURE >= 900)  // others start a kernel when the one before has ended
    EXPECT_GT(wrong([&] { run(double_kernel<false>); }, two), 0);
}

template <bool kWait>
__global__ void copy_kernel(const int32_t* in, int32_t* out) {
  extern __shared__ __align__(128) unsigned char memory[];
  __shared__ uint64_t barrier;
  const uint32_t at = shared_address(&barrier);
  constexpr int kBytes = kThreads * 4;
  if (threadIdx.x == 0) {
    init_barrier<1>(at);
    publish_barriers();
    ::emulator::ptx::mbarrier_arrive_expect_tx_shared_cta_b64(at, kBytes);
    ::emulator::ptx::copy_bulk(shared_address(memory), in, kBytes, at);
  }
  __syncthreads();
  if (kWait) wait_barrier(at, 0);
  out[threadIdx.x] = reinterpret_cast<const int32_t*>(memory)[threadIdx.x] + 1;
  wait_barrier(at, 0);
}
TEST_F(Emulator, ShowsAMissingWaitForACopy) {
  const auto run = [&](auto* kernel) {
    launch(stream_, dim3(1), dim3(kThreads), 1024, kernel, words_ + 1024, words_);
  };
  const auto one = [](int) { return 1; };
  EXPECT_EQ(wrong([&] { run(copy_kernel<true>); }, one, kThreads), 0);
  EXPECT_GT(wrong([&] { run(copy_kernel<false>); }, one, kThreads), 0);
}

// Blocks count each other; adding in two steps loses some.
template <bool kAtomic>
__global__ void count_kernel(int32_t* words) {
  if (threadIdx.x != 0) return;
  if (kAtomic) {
    atomicAdd(words, 1);
  } else {
    const uint32_t before = look_at_four(reinterpret_cast<const uint32_t*>(words)).x;
    words[0] = static_cast<int32_t>(before) + 1;
  }
  arrive_at(words + 1);
  wait_for(words + 1, kBlocks);
}
TEST_F(Emulator, ShowsALostUpdate) {
  const auto all = [](int) { return kBlocks; };
  EXPECT_EQ(wrong([&] { launch(stream_, dim3(kBlocks), dim3(32), 0, count_kernel<true>, words_); },
                  all, 2),
            0);
  EXPECT_GT(wrong([&] { launch(stream_, dim3(kBlocks), dim3(32), 0, count_kernel<false>, words_); },
                  all, 2),
            0);
}

// What ends the program.
using EmulatorDeathTest = Emulator;

__global__ void wait_kernel(const int32_t* word) { wait_for(word, 1); }
__global__ void store_kernel(uint32_t at) { ::emulator::ptx::st_shared_u32(at, 1); }
__global__ void arrive_kernel(uint32_t at) { ::emulator::ptx::mbarrier_arrive_shared_b64(at); }
__global__ void part_kernel(int32_t* out) {
  out[threadIdx.x] =
      threadIdx.x < 16 ? __shfl_sync(0xFFFFFFFFu, 1, 0) : __shfl_xor_sync(0xFFFFu, 1, 1);
}
__global__ void odd_copy_kernel(const unsigned char* in) {
  extern __shared__ __align__(128) unsigned char memory[];
  ::emulator::ptx::copy_bulk(shared_address(memory), in + 4, 16, 0);
}
TEST_F(EmulatorDeathTest, EndsWhatCannotGoOn) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  clear();
  const auto run = [&](auto* kernel, size_t bytes, auto argument) {
    launch(stream_, dim3(1), dim3(32), bytes, kernel, argument);
    finish();
  };
  EXPECT_DEATH(run(wait_kernel, 0, words_), "all wait for one another");
  EXPECT_DEATH(run(store_kernel, 1024, 1024u), "outside of shared memory");
  EXPECT_DEATH(run(store_kernel, 1024, 2u), "not aligned");
  EXPECT_DEATH(run(arrive_kernel, 1024, 8u), "never made");
  EXPECT_DEATH(run(part_kernel, 0, words_), "no part of");
  EXPECT_DEATH(run(odd_copy_kernel, 1024, reinterpret_cast<unsigned char*>(words_)),
               "multiples of 16 bytes");
}

// One product of matrices, against sums of integers.
__global__ void multiply_kernel(int32_t* out) {
  const int lane = static_cast<int>(threadIdx.x), g = lane / 4, t = lane % 4;
  const auto a = [&](int row, int k) { return static_cast<float>((row * 3 + k) % 7 - 3); };
  const auto b = [&](int k, int column) { return static_cast<float>((k + column * 5) % 5 - 2); };
  const uint32_t own[4] = {pack_bf16(a(g, 2 * t), a(g, 2 * t + 1)),
                           pack_bf16(a(g + 8, 2 * t), a(g + 8, 2 * t + 1)),
                           pack_bf16(a(g, 2 * t + 8), a(g, 2 * t + 9)),
                           pack_bf16(a(g + 8, 2 * t + 8), a(g + 8, 2 * t + 9))};
  float d[4];
  multiply(d, own, pack_bf16(b(2 * t, g), b(2 * t + 1, g)),
           pack_bf16(b(2 * t + 8, g), b(2 * t + 9, g)));
  for (int i = 0; i < 4; ++i) {
    const int row = g + i / 2 * 8, column = 2 * t + i % 2;
    float want = 0;
    for (int k = 0; k < 16; ++k) want += a(row, k) * b(k, column);
    out[lane * 4 + i] = d[i] == want ? 1 : 0;
  }
}
TEST_F(Emulator, MultipliesMatrices) {
  launch(stream_, dim3(1), dim3(32), 0, multiply_kernel, words_);
  finish();
  for (int i = 0; i < 128; ++i) EXPECT_EQ(words_[i], 1) << "result " << i;
}

}  // namespace
}  // namespace pewter::cuda
