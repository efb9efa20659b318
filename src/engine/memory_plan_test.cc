// The memory plan on machines that are not at hand: numbers in, numbers out.
#include "engine/memory_plan.h"

#include <gmock/gmock.h>

#include "backend/factory.h"
#include "model/qwen35/shapes.h"

namespace pewter {
namespace {

constexpr int64_t kGb = 1'000'000'000, kGiB = int64_t{1} << 30;

TEST(MemoryBudget, OfAGpuIsAShareOfAllLessWhatIsTaken) {
  const DeviceMemory gpu{.total = 100 * kGb, .free = 96 * kGb, .kind = MemoryKind::kDevice};
  EXPECT_EQ(memory_budget(gpu, {}), 86 * kGb);
  EXPECT_EQ(memory_budget(gpu, {.gpu_utilization = 0.5}), 46 * kGb);
  EXPECT_EQ(memory_budget(gpu, {.gpu_utilization = 1}), 96 * kGb);
  EXPECT_EQ(memory_budget(gpu, {.gpu_utilization = 0.03}), 0);  // others have more
  EXPECT_EQ(memory_budget(gpu, {.host_bytes = kGb}), 86 * kGb);
}

// A Spark: 128 GB for the GPU and everything else.
TEST(MemoryBudget, OfUnifiedMemoryLeavesTheHostAFloor) {
  DeviceMemory spark{.total = 128 * kGb, .free = 120 * kGb, .kind = MemoryKind::kUnified};
  EXPECT_EQ(memory_budget(spark, {.gpu_utilization = 0.5}), 56 * kGb);
  EXPECT_EQ(memory_budget(spark, {.gpu_utilization = 1}), 120 * kGb - kUnifiedFloor);
  spark.free = 8 * kGb;
  EXPECT_EQ(memory_budget(spark, {.gpu_utilization = 1}), 0);
}

TEST(MemoryBudget, OfTheHostIsWhatItIsToldOrMostOfWhatIsFree) {
  const DeviceMemory host{.total = 64 * kGiB, .free = 40 * kGiB};
  EXPECT_EQ(memory_budget(host, {}), 39 * kGiB);
  EXPECT_EQ(memory_budget({.total = 64 * kGiB, .free = kGiB}, {}), kGiB - kGiB / 10);
  EXPECT_EQ(memory_budget(host, {.host_bytes = 8 * kGb}), 8 * kGb);
  EXPECT_EQ(memory_budget(host, {.host_bytes = 80 * kGiB}), 40 * kGiB);
  EXPECT_EQ(memory_budget(host, {.gpu_utilization = 0.1}), 39 * kGiB);
}

// A runner of 1,000 bytes a position, a million a state, and 500,000 of scratch.
RunnerMemory simple(const RunnerOptions& options) {
  return {.kv_bytes = pages_for(options.cache_tokens) * kPageTokens * 1000,
          .state_bytes = options.max_sequences * 1'000'000,
          .scratch_bytes = 400'000,
          .recorded_bytes = 100'000};
}
MemoryRequest request(int64_t budget) {
  return {.weight_bytes = 10'000'000, .budget_bytes = budget, .model_positions = 262144};
}

TEST(MemoryPlan, ChoosesTheDefaultContextOrHalvesItUntilItFits) {
  MemoryPlan plan = plan_memory(request(kGb), simple).value();
  EXPECT_EQ(plan.context, kDefaultContext);
  EXPECT_EQ(plan.runner.cache_tokens, kDefaultContext);
  EXPECT_EQ(plan.needed(), 10'000'000 + 1'000'000 + 500'000 + 32'768'000);
  EXPECT_TRUE(plan.fits());
  EXPECT_EQ(plan_memory(request(44'268'000), simple)->context, 32768);
  EXPECT_EQ(plan_memory(request(44'267'999), simple)->context, 16384);
  MemoryRequest small = request(kGb);
  small.model_positions = 8192;
  EXPECT_EQ(plan_memory(small, simple)->context, 8192);
}

TEST(MemoryPlan, SaysWhenNothingFits) {
  const MemoryPlan plan = plan_memory(request(11'000'000), simple).value();
  EXPECT_FALSE(plan.fits());
  EXPECT_EQ(plan.context, kPageTokens);
  EXPECT_EQ(plan.longest, 0);
}

TEST(MemoryPlan, AutoIsTheLongestThatFitsForAllSequences) {
  MemoryRequest asked = request(10'000'000 + 2'000'000 + 500'000 + 2 * 6'400'000);
  asked.context = kLongestContext;
  asked.runner.max_sequences = 2;
  MemoryPlan plan = plan_memory(asked, simple).value();
  EXPECT_EQ(plan.context, 6400);  // 100 pages
  EXPECT_EQ(plan.runner.cache_tokens, 2 * 6400);
  EXPECT_EQ(plan.needed(), asked.budget_bytes);
  asked.budget_bytes -= 1;
  EXPECT_EQ(plan_memory(asked, simple)->context, 6400 - kPageTokens);
  asked.budget_bytes = 100 * kGb;
  EXPECT_EQ(plan_memory(asked, simple)->context, asked.model_positions);
  asked.budget_bytes = 11'000'000;
  plan = plan_memory(asked, simple).value();
  EXPECT_FALSE(plan.fits());
  EXPECT_EQ(plan.context, kPageTokens);
}

TEST(MemoryPlan, AGivenContextIsKeptAndTheLongestIsNamed) {
  MemoryRequest asked = request(10'000'000 + 1'000'000 + 500'000 + 64'000);
  asked.context = 1000;
  const MemoryPlan plan = plan_memory(asked, simple).value();
  EXPECT_EQ(plan.context, 1000);
  EXPECT_EQ(plan.runner.cache_tokens, 1024);
  EXPECT_FALSE(plan.fits());
  EXPECT_EQ(plan.longest, 64);
}

TEST(MemoryPlan, CachesAContextForAsManySequencesAsFit) {
  MemoryRequest asked = request(10'000'000 + 8'000'000 + 500'000 + 3'100'000);
  asked.context = 1024;
  asked.runner.max_sequences = 8;
  asked.weight_bytes = 2'000'000;  // states are then less than half of the rest
  asked.budget_bytes -= 8'000'000;
  MemoryPlan plan = plan_memory(asked, simple).value();
  EXPECT_EQ(plan.runner.max_sequences, 4);  // 8 MB of states are more than half of 11.6
  asked.budget_bytes = 2'000'000 + 20'000'000;
  plan = plan_memory(asked, simple).value();
  EXPECT_EQ(plan.runner.max_sequences, 8);
  EXPECT_EQ(plan.runner.cache_tokens, 8 * 1024);
  asked.context = 4096;
  EXPECT_EQ(plan_memory(asked, simple)->runner.cache_tokens, 2 * 4096);
  EXPECT_TRUE(plan_memory(asked, simple)->fits());
}

TEST(MemoryPlan, TakesAGivenCache) {
  MemoryRequest asked = request(kGb);
  asked.cache_bytes = 1'000'000;  // 15 pages
  EXPECT_EQ(plan_memory(asked, simple)->runner.cache_tokens, 960);
  EXPECT_EQ(plan_memory(asked, simple)->context, 960);
  asked.context = kLongestContext;
  asked.runner.max_sequences = 4;
  EXPECT_EQ(plan_memory(asked, simple)->context, 192);  // three pages each
  asked.context = 961;
  const auto plan = plan_memory(asked, simple);
  ASSERT_FALSE(plan);
  EXPECT_THAT(plan.error().message, testing::HasSubstr("1000000 hold 960 tokens, not the 961"));
  asked.context = 0;
  asked.cache_bytes = 2 * kGb;  // more than there is
  EXPECT_FALSE(plan_memory(asked, simple)->fits());
}

// What is planned is what is taken.
class CountingDevice final : public Device {
 public:
  explicit CountingDevice(std::shared_ptr<Device> real) : real_(std::move(real)) {}
  std::string_view name() const override { return real_->name(); }
  int64_t cache_bytes() const override { return 0; }
  DeviceMemory memory() const override { return real_->memory(); }
  Result<Buffer> allocate(int64_t bytes) override {
    taken += bytes;
    return real_->allocate(bytes);
  }
  void copy_to_device(std::byte* to, std::span<const std::byte> from) override {
    real_->copy_to_device(to, from);
  }
  void copy_to_host(std::span<std::byte> to, const std::byte* from) override {
    real_->copy_to_host(to, from);
  }
  void zero(std::byte* at, int64_t bytes) override { real_->zero(at, bytes); }
  Result<WeightMatrix> make_weight(const WeightSpec& spec) override {
    return real_->make_weight(spec);
  }
  void store_rows(WeightMatrix& w, int64_t index, int64_t row_begin,
                  const WeightMatrix& rows) override {
    real_->store_rows(w, index, row_begin, rows);
  }
  int64_t stored_weight_bytes(const WeightSpec& spec) const override {
    return real_->stored_weight_bytes(spec);
  }
  int64_t kv_page_bytes(KvFormat format, int64_t kv_heads, int64_t head_dim) const override {
    return real_->kv_page_bytes(format, kv_heads, head_dim);
  }
  int64_t recorded_bytes(int64_t passes) const override { return 7 + 1000 * passes; }
  int64_t taken = 0;

 private:
  std::shared_ptr<Device> real_;
};

TEST(RunnerMemory, IsWhatARunnerTakes) {
  for (const char* name : {"cpu", "cpu-reference"}) {
    const Backend backend = make_backend({.device = name, .threads = 2}).value();
    Qwen35Model model;
    model.config = shape_config("third").value();
    const RunnerOptions options{
        .chunk_rows = 128, .max_sequences = 3, .decode_rows = 4, .cache_tokens = 1000};
    CountingDevice device(backend.device);
    const RunnerMemory planned = ModelRunner::memory(model, device, *backend.ops, options);
    const auto runner = ModelRunner::make(model, device, *backend.ops, options).value();
    // The CPU's ops keep their scratch on the host, beside the device.
    OpsLimits limits = model.limits(128, 3, 12);
    limits.decode_rows = 4;
    limits.cache_positions = 1024;
    EXPECT_EQ(planned.total() - planned.recorded_bytes,
              device.taken + backend.ops->scratch_bytes(limits))
        << name;
    EXPECT_GT(backend.ops->scratch_bytes(limits), 128 * 2048 * 4) << name;
  }
}

// One, two and three guesses of the MTP layer, of one sequence behind one to four rows, of two
// sequences and of three.
TEST(RunnerMemory, CountsRecordedChains) {
  const Backend backend = make_backend({.device = "cpu", .threads = 1}).value();
  const CountingDevice device(backend.device);
  Qwen35Model model;
  model.config = shape_config("third").value();
  RunnerOptions options{.chunk_rows = 128, .max_sequences = 3, .decode_rows = 4};
  const auto recorded = [&] {
    return ModelRunner::memory(model, device, *backend.ops, options).recorded_bytes;
  };
  EXPECT_EQ(recorded(), 7);
  model.weights.mtp.emplace();
  EXPECT_EQ(recorded(), 7 + 1000 * (4 + 2) * (1 + 2 + 3));
  options.max_sequences = 100;
  EXPECT_EQ(recorded(), 7 + 1000 * (4 + kMostChained - 1) * (1 + 2 + 3));
  options.cache_tokens = kShortContext + 1;  // one sequence may be behind a long context too
  EXPECT_EQ(recorded(), 7 + 1000 * (2 * 4 + kMostChained - 1) * (1 + 2 + 3));
  options.decode_rows = 1;
  EXPECT_EQ(recorded(), 7);
}

}  // namespace
}  // namespace pewter
