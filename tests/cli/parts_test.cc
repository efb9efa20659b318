// The parts of the program that need no model's answer.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/file.h"
#include "cli/loaded_model.h"
#include "cli/shared_flags.h"
#include "cli/table.h"
#include "cli/terminal.h"
#include "program.h"

namespace pewter::cli_test {
namespace {

using testing::ElementsAre;

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

TEST(ChooseContext, HalvesUntilItFits) {
  const auto thousand_each = [](int64_t tokens) { return tokens * 1000; };
  EXPECT_EQ(choose_context(262144, int64_t{1} << 40, thousand_each), kDefaultContext);
  EXPECT_EQ(choose_context(8192, int64_t{1} << 40, thousand_each), 8192);
  EXPECT_EQ(choose_context(8192, 5'200'000, thousand_each), 4096);
  EXPECT_EQ(choose_context(8192, 0, thousand_each), kPageTokens);
}

TEST(ChooseCache, HasAContextForAsManyAsFit) {
  const auto thousand_each = [](int64_t tokens) { return tokens * 1000; };
  EXPECT_EQ(choose_cache(1024, 8, int64_t{1} << 40, thousand_each), 8 * 1024);
  EXPECT_EQ(choose_cache(1024, 8, 4'000'000, thousand_each), 3 * 1024);  // 80 % of it hold three
  EXPECT_EQ(choose_cache(1024, 8, 0, thousand_each), 1024);
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
