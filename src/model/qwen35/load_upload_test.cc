// A load whose device takes rows late: buffers wait for it, everything has arrived at the end, and
// what goes wrong on the way is named.

#include <gmock/gmock.h>

#include <filesystem>
#include <map>
#include <mutex>

#include "model/qwen35/load.h"
#include "model/qwen35/testing/host_device.h"
#include "model/qwen35/testing/synthetic_checkpoint.h"

namespace pewter {
namespace {

using testing::HasSubstr;

// Takes rows when it is waited for, and not before.
class LateUploader final : public RowUploader {
 public:
  struct Counts {
    int64_t begun = 0, finished = 0, most_pending = 0;
  };
  LateUploader(Device& device, Counts& counts, int64_t room)
      : device_(device), counts_(counts), room_(room) {}

  Result<Buffer> allocate_host(int64_t bytes) override { return Buffer::host(bytes); }
  Result<int64_t> begin(WeightMatrix& w, int64_t index, int64_t row_begin,
                        const WeightMatrix& rows) override {
    const std::lock_guard lock(mutex_);
    if (counts_.begun == room_) return Error{ErrorCode::kResourceExhausted, "no room for rows"};
    pending_.emplace(++counts_.begun, Rows{&w, index, row_begin, rows});
    counts_.most_pending = std::max(counts_.most_pending, static_cast<int64_t>(pending_.size()));
    return counts_.begun;
  }
  void finish(int64_t pending) override {
    if (pending == 0) return;
    const std::lock_guard lock(mutex_);
    const auto found = pending_.find(pending);
    CHECK(found != pending_.end(), "rows ", pending, " finished twice");
    const Rows& rows = found->second;
    device_.store_rows(*rows.to, rows.index, rows.row_begin, rows.rows);
    pending_.erase(found);
    ++counts_.finished;
  }

 private:
  struct Rows {
    WeightMatrix* to;
    int64_t index, row_begin;
    WeightMatrix rows;
  };
  Device& device_;
  Counts& counts_;
  const int64_t room_;
  std::mutex mutex_;
  std::map<int64_t, Rows> pending_;
};

class LateDevice final : public HostDevice {
 public:
  explicit LateDevice(int64_t room = INT64_MAX) : room_(room) {}
  std::unique_ptr<RowUploader> make_row_uploader() override {
    return std::make_unique<LateUploader>(*this, counts, room_);
  }
  LateUploader::Counts counts;

 private:
  int64_t room_;
};

SyntheticCheckpoint mixed_checkpoint() {
  SyntheticCheckpoint synthetic;
  synthetic.set_quantization(auto_round_config());
  for (const std::string& module : synthetic.quantisable_modules()) synthetic.pack_int4(module);
  return synthetic;
}

Result<LoadedWeights> load(const Checkpoint& checkpoint, Device& device, int threads,
                           const std::function<void()>& when_planned = {}) {
  const ModelConfig config = ModelConfig::parse(checkpoint.config()).value();
  return load_weights(checkpoint, config, device,
                      {.threads = threads, .on_plan = [&](const LoadPlan&) -> Status {
                         if (when_planned) when_planned();
                         return {};
                       }});
}

TEST(LoadLate, GivesTheSameWeights) {
  const SyntheticCheckpoint synthetic = mixed_checkpoint();
  const TempDirectory directory;
  synthetic.write(directory);
  const Checkpoint checkpoint = Checkpoint::open(directory.path()).value();
  for (const int threads : {1, 3}) {
    LateDevice device;
    LoadedWeights loaded = load(checkpoint, device, threads).value();
    EXPECT_GT(device.counts.begun, 20);
    EXPECT_EQ(device.counts.begun, device.counts.finished);
    // Two a thread: one that the device takes, one that is read.
    EXPECT_LE(device.counts.most_pending, 2 * threads);
    EXPECT_GE(device.counts.most_pending, 2);
    const ModelConfig config = ModelConfig::parse(checkpoint.config()).value();
    for (const MatrixParameter& p : list_parameters(config, true, loaded.weights).matrices)
      for (int64_t i = 0; i < p.count; ++i) {
        const std::string name =
            p.is_experts() ? str_cat(p.module, ".", i, ".", p.projection) : p.module;
        const WeightMatrix& want = synthetic.expected.at(name);
        std::vector<float> have_row(static_cast<size_t>(p.k)), want_row = have_row;
        for (int64_t row = 0; row < p.n; ++row) {
          decode_row(*p.target, i, row, have_row.data());
          decode_row(want, 0, row, want_row.data());
          ASSERT_EQ(have_row, want_row) << name << " row " << row << ", threads " << threads;
        }
      }
  }
}

TEST(LoadLate, NamesFileAndTensorWhenTheDeviceIsFull) {
  const TempDirectory directory;
  mixed_checkpoint().write(directory);
  const Checkpoint checkpoint = Checkpoint::open(directory.path()).value();
  LateDevice device(/*room=*/0);
  const auto loaded = load(checkpoint, device, 2);
  ASSERT_FALSE(loaded);
  EXPECT_EQ(loaded.error().code, ErrorCode::kResourceExhausted);
  EXPECT_THAT(loaded.error().message, testing::StartsWith("model.safetensors: "));
  EXPECT_THAT(loaded.error().message, HasSubstr("weight: no room for rows"));
}

TEST(LoadLate, NamesFileAndTensorWhenTheFileEnds) {
  const TempDirectory directory;
  mixed_checkpoint().write(directory);
  const Checkpoint checkpoint = Checkpoint::open(directory.path()).value();
  LateDevice device;
  const std::string path = checkpoint.file(0).path();
  const auto loaded = load(checkpoint, device, 2, [&] {
    std::filesystem::resize_file(path, std::filesystem::file_size(path) / 2);
  });
  ASSERT_FALSE(loaded);
  EXPECT_EQ(loaded.error().code, ErrorCode::kCorruptData);
  EXPECT_THAT(loaded.error().message,
              testing::MatchesRegex("model.safetensors: [a-z].*weight.*: .*ends at byte.*"));
  EXPECT_EQ(device.counts.begun, device.counts.finished);
}

}  // namespace
}  // namespace pewter
