// The parts of the program that need no model's answer.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/file.h"
#include "cli/loaded_model.h"
#include "cli/memory_report.h"
#include "cli/shared_flags.h"
#include "cli/table.h"
#include "cli/terminal.h"
#include "program.h"

namespace pewter::cli_test {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

TEST(StopSet, IsTheUnionOfAllThreeFiles) {
  const Tokenizer tokenizer = Tokenizer::load(demo_model()).value();  // <|im_end|> is 4002
  ModelConfig config;
  config.vocab_size = 4096;
  config.eos_token_ids = {4000};
  GenerationDefaults defaults;
  EXPECT_THAT(stop_set(defaults, tokenizer, config), ElementsAre(4000, 4002));
  defaults.eos_token_ids = {4002, 17, 9999};  // 9999 is in no vocabulary
  EXPECT_THAT(stop_set(defaults, tokenizer, config), ElementsAre(17, 4000, 4002));
}

// 100 GB of weights; 100 kB a position, 1 GB a state, 2 GB beside them.
MemoryReport planned(const DeviceMemory& memory, const MemoryOptions& options) {
  const bool host = memory.kind == MemoryKind::kHost;
  return plan_model_memory(host ? "cpu" : "cuda", memory, 262144, 100'000'000'000, options,
                           [](const RunnerOptions& runner) {
                             return RunnerMemory{
                                 .kv_bytes = pages_for(runner.cache_tokens) * kPageTokens * 100'000,
                                 .state_bytes = runner.max_sequences * 1'000'000'000,
                                 .scratch_bytes = 1'500'000'000,
                                 .recorded_bytes = 500'000'000};
                           })
      .value();
}
constexpr int64_t kGb = 1'000'000'000;

TEST(MemoryReport, ATableOfAGpu) {
  const MemoryReport report = planned(
      {.total = 141 * kGb, .free = 139 * kGb, .kind = MemoryKind::kDevice}, {.context = 65536});
  EXPECT_EQ(memory_table(report),
            "  weights           100 GB\n"
            "  keys and values  6.55 GB  65 536 tokens of context\n"
            "  recurrent state  1.00 GB  one sequence, with its tape\n"
            "  scratch          1.50 GB  of one step\n"
            "  graphs            500 MB  recorded steps\n"
            "  -------------------------------------------------------------------\n"
            "  needed            110 GB  it fits\n"
            "  budget            125 GB  up to 0.90 of 141 GB, 2.00 GB of it taken\n");
  EXPECT_TRUE(check_fits("m", report));
}

TEST(MemoryReport, RefusalsSayWhatWouldFit) {
  const auto refusal = [](const DeviceMemory& memory, const MemoryOptions& options) {
    const Status status = check_fits("m", planned(memory, options));
    return status ? std::string("fits") : status.error().message;
  };
  const DeviceMemory gpu{.total = 141 * kGb, .free = 139 * kGb, .kind = MemoryKind::kDevice};
  EXPECT_THAT(
      refusal(gpu, {.context = 262144}),
      HasSubstr("m: needs 129 GB on cuda and may take 125 GB (up to 0.90 of 141 GB, 2.00 GB "
                "of it taken): weights 100 GB, keys and values 26.2 GB (262144 tokens), "
                "recurrent state 1.00 GB (1 sequence), scratch 2.00 GB; --max-model-len "
                "218944 or --gpu-memory-utilization 0.94 would fit"));
  // A cache that was asked for.
  EXPECT_THAT(refusal(gpu, {.cache_bytes = 30 * kGb}),
              HasSubstr("; --kv-cache-memory-bytes 21900000000 or --gpu-memory-utilization 0.96"));
  // The same GPU sharing the host's memory: no utilization takes what the host needs.
  const DeviceMemory unified{.total = 119 * kGb, .free = 112 * kGb, .kind = MemoryKind::kUnified};
  EXPECT_THAT(refusal(unified, {.limits = {.gpu_utilization = 1}, .context = 8192}),
              HasSubstr("8.59 GB stay free for the host"));
  EXPECT_THAT(refusal(unified, {.limits = {.gpu_utilization = 1}, .context = 8192}),
              HasSubstr("; --max-model-len 4096 would fit"));
  const DeviceMemory small{.total = 80 * kGb, .free = 79 * kGb, .kind = MemoryKind::kDevice};
  EXPECT_THAT(refusal(small, {}), HasSubstr("; the weights alone do not fit"));
  const DeviceMemory host{.total = 256 * kGb, .free = 200 * kGb};
  EXPECT_THAT(refusal(host, {.limits = {.host_bytes = 90 * kGb}}),
              HasSubstr("; --memory-gb 103.1 would fit"));
}

TEST(MemoryReport, AHostsBudgetIsNoGpus) {
  const auto report = plan_model_memory(
      "cuda", {.total = kGb, .free = kGb, .kind = MemoryKind::kDevice}, 1, 1,
      {.limits = {.host_bytes = 1}}, [](const RunnerOptions&) { return RunnerMemory{}; });
  ASSERT_FALSE(report);
  EXPECT_THAT(report.error().message, HasSubstr("--memory-gb is for the CPU"));
}

TEST(SamplingFlags, OverrideTheDefaults) {
  SamplingFlags flags;
  flags.top_k = 5;
  flags.seed = 9;
  const SamplingParams params = flags.apply({.temperature = 0.5f, .top_k = 20, .top_p = 0.9f});
  EXPECT_EQ(params.temperature, 0.5f);
  EXPECT_EQ(params.top_k, 5);
  EXPECT_EQ(params.top_p, 0.9f);
  EXPECT_EQ(params.seed, 9u);
}

TEST(Terminal, NeverSeesControlCharacters) {
  EXPECT_EQ(without_controls("a\tb\nc ü 🙂"), "a\tb\nc ü 🙂");
  EXPECT_EQ(without_controls("\x1b[2J\r\x07"), "\uFFFD[2J\uFFFD\uFFFD");
  EXPECT_EQ(without_controls("\u009b1m\x7f"), "\uFFFD1m\uFFFD");
}

TEST(Table, AlignsItsColumns) {
  Table table({Table::Align::kLeft, Table::Align::kRight});
  table.row({"a", "1"});
  table.rule();
  table.row({"long", "1 000"});
  table.row({"", ""});
  EXPECT_EQ(table.text(),
            "  a         1\n"
            "  -----------\n"
            "  long  1 000\n"
            "\n");
}

TEST(Table, GroupsDigits) {
  EXPECT_EQ(grouped(0), "0");
  EXPECT_EQ(grouped(999), "999");
  EXPECT_EQ(grouped(1000), "1 000");
  EXPECT_EQ(grouped(-1234567), "-1 234 567");
}

}  // namespace
}  // namespace pewter::cli_test
