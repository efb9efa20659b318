// `pewter bench`: what it prints, and what it refuses before it makes anything.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <sstream>

#include "base/json.h"
#include "program.h"

namespace pewter::cli_test {
namespace {

using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;

ProgramResult bench(std::vector<std::string> arguments) {
  arguments.insert(arguments.begin(), "bench");
  return run_program(arguments);
}

Json bench_json(std::vector<std::string> arguments) {
  arguments.insert(arguments.end(), {"--json", "--repeat", "2"});
  const ProgramResult result = bench(std::move(arguments));
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_THAT(result.err, IsEmpty());
  return Json::parse(result.out).value();
}

double number(const Json& json, const char* key) {
  const Json* value = json.find(key);
  EXPECT_TRUE(value != nullptr && value->is_number()) << key;
  return value != nullptr && value->is_number() ? value->as_double() : 0;
}

void expect_shares_agree(const Json& json, const char* reached, const char* ceiling) {
  EXPECT_GT(number(json, reached), 0);
  EXPECT_GT(number(json, ceiling), 0);
  EXPECT_NEAR(number(json, "share_of_ceiling"), number(json, reached) / number(json, ceiling),
              1e-9);
  const Json::Array& repeats = json.find("repeats")->as_array();
  ASSERT_EQ(repeats.size(), 2u);
  const double a = repeats[0].as_double(), b = repeats[1].as_double();
  EXPECT_EQ(number(json, "tokens_per_second"), std::max(a, b));
  EXPECT_NEAR(number(json, "tokens_per_second_median"), (a + b) / 2, 1e-9);
}

// Tokens that count, not rows, are what the speed is of; drafting takes its time.
TEST(Bench, ReplaysAChosenAcceptance) {
  const Json json = bench_json({"decode", demo_model(), "--tokens", "6", "--threads", "1", "--rows",
                                "4", "--forced-tokens-per-step", "2.5", "--speculate", "mtp"});
  EXPECT_EQ(number(json, "forced_tokens_per_step"), 2.5);
  EXPECT_EQ(json.find("speculate")->as_string(), "mtp");
  EXPECT_GT(number(json, "tokens_per_second"), 0);
  // A token needs its share of a step's bytes among those that count.
  double step = 0;
  for (const auto& [part, bytes] : json.find("step_bytes")->as_object()) step += bytes.as_double();
  EXPECT_NEAR(number(json, "bytes_per_token"), step / 2.5, 1);
}

// Every drafter of a shape: what it takes and needs beside the step.
TEST(Bench, DraftsWithRandomWeights) {
  const auto draft = [](std::vector<std::string> how) {
    std::vector<std::string> arguments = {
        "decode", "--shape", "third", "--format", "int4", "--tokens", "4", "--draft-tokens", "3"};
    arguments.insert(arguments.end(), how.begin(), how.end());
    return bench_json(arguments);
  };
  const Json bf16 = draft({"--speculate", "mtp"});
  const Json small =
      draft({"--speculate", "mtp", "--draft-format", "int4", "--draft-head-rows", "4096"});
  EXPECT_EQ(number(bf16, "rows"), 4);
  EXPECT_EQ(small.find("draft_format")->as_string(), "int4");
  // Three times the layer: 16.5 million in bf16, or 2.2 of them in bf16 and the rest in int4; the
  // head's 1,024 a token.
  EXPECT_NEAR(number(bf16, "draft_bytes") / 3e6, 2 * 16.5 + 33.7, 0.5);
  EXPECT_NEAR(number(small, "draft_bytes") / 3e6, 4.3 + 14.3 * 4.125 / 8 + 4.2, 0.3);
  for (const Json* json : {&bf16, &small}) {
    EXPECT_GT(number(*json, "draft_us"), 0);
    EXPECT_LT(number(*json, "draft_share_of_step"), 1);
    EXPECT_NEAR(number(*json, "draft_share_of_ceiling"),
                number(*json, "draft_bytes") / number(*json, "draft_us") / 1e3 /
                    number(*json, "ceiling_gb_per_second"),
                1e-6);
    EXPECT_GT(number(*json, "step_us_after_part"), 0);
  }
  const Json dflash = draft({"--speculate", "dflash", "--draft-format", "fp8"});
  EXPECT_NEAR(number(dflash, "draft_bytes") / 1e6, 29.9 + 33.7, 2);
  const Json suffix = draft({"--speculate", "suffix"});
  EXPECT_GT(number(suffix, "draft_us"), 0);
  EXPECT_EQ(number(suffix, "draft_bytes"), 0);
}

// Plain steps and drafted ones in turn; guesses are right as often as was asked.
TEST(Bench, DraftsByCostAgainstPlainSteps) {
  const auto drafting = [](const char* acceptance) {
    return bench_json({"drafting", demo_model(), "--speculate", "mtp", "--draft-tokens", "4",
                       "--tokens", "150", "--threads", "1", "--acceptance", acceptance});
  };
  const Json never = drafting("0"), always = drafting("1");
  EXPECT_EQ(number(never, "steps"), 2 * 150);
  EXPECT_EQ(number(never, "right"), 0);
  EXPECT_GT(number(never, "drafts"), 0);
  EXPECT_LT(number(never, "drafts"), 60);
  EXPECT_GT(number(never, "ratio"), 0.5);  // loaded machines
  EXPECT_EQ(number(always, "right"), number(always, "guesses"));
  const ProgramResult refused = bench(
      {"drafting", demo_model(), "--acceptance", "2", "--speculate", "mtp", "--draft-tokens", "1"});
  EXPECT_THAT(refused.err, HasSubstr("--acceptance: 2 is outside [0, 1]"));
}

// Eight rows of 64 experts, eight each: 42 when they choose evenly; 8 x 8^0.74 in text.
TEST(Bench, RoutesAsTextDoes) {
  const Json json = bench_json({"decode", "--shape", "third", "--format", "int4", "--tokens", "8",
                                "--rows", "8", "--routing", "overlapped"});
  EXPECT_EQ(json.find("routing")->as_string(), "overlapped");
  EXPECT_NEAR(number(json, "distinct_experts"), 8 * std::pow(8, 0.74), 2);
}

TEST(Bench, AcceptCountsByFamily) {
  const std::string file = testing::TempDir() + "accept-prompts.jsonl";
  std::ofstream(file) << R"({"family": "counting", "prompt": "Count from 20 to 40."})" << "\n"
                      << R"({"family": "capital", "messages": [{"role": "user", "content": )"
                      << R"("What is the capital of France?"}]})" << "\n";
  const std::string chart = testing::TempDir() + "accept.svg";
  const std::vector<std::string> work = {
      "accept", demo_model(), "--prompts", file,    "--methods", "plain,mtp:2", "--tokens",
      "30",     "--repeat",   "1",         "--csv", "--svg",     chart};
  const ProgramResult result = bench(work);
  ASSERT_EQ(result.exit_code, 0) << result.err;
  EXPECT_THAT(result.out, HasSubstr(",counting,plain,1,29,29,0,0,0,1.0000,"));
  EXPECT_THAT(result.out, HasSubstr(",all,mtp:2,2,"));
  std::ostringstream svg;
  svg << std::ifstream(chart).rdbuf();
  EXPECT_THAT(svg.str(), HasSubstr(">capital</text>"));
  EXPECT_THAT(svg.str(), HasSubstr("</svg>"));
  const auto refused = [&](std::vector<std::string> arguments, const char* why) {
    const ProgramResult said = bench(std::move(arguments));
    EXPECT_NE(said.exit_code, 0);
    EXPECT_THAT(said.err, HasSubstr(why));
  };
  refused({"accept", demo_model()}, "accept needs --prompts");
  refused({"accept", demo_model(), "--prompts", "/nope"}, "/nope");
  refused({"accept", demo_model(), "--prompts", file, "--methods", "eagle"}, "\"eagle\"");
  refused({"accept", demo_model(), "--prompts", file, "--methods", "mtp:0"}, "mtp:k");
  refused({"accept", demo_model(), "--prompts", file, "--methods", "dflash"}, "--draft-model");
  refused({"decode", demo_model(), "--prompts", file}, "belong to accept");
  refused({"decode", demo_model(), "--forced-tokens-per-step", "2"}, "outside [1, --rows]");
  refused({"decode", "--shape", "third", "--speculate", "mtp"}, "needs --rows above 1");
  refused({"decode", "--shape", "third", "--rows", "2", "--speculate", "auto"}, "want mtp, dflash");
  refused({"decode", "--shape", "qwen3.5-27b", "--rows", "2", "--speculate", "dflash"},
          "no drafter is known of shape");
  refused({"decode", "--shape", "third", "--rows", "2", "--draft-head-rows", "5"},
          "need --speculate");
  refused({"decode", "--shape", "third", "--rows", "2", "--speculate", "mtp", "--draft-head-rows",
           "ids.txt"},
          "--draft-head-rows: a --shape has no tokens of a file");
  refused({"decode", "--shape", "third", "--draft-tokens", "2", "--speculate", "mtp",
           "--draft-format", "int8"},
          "\"int8\" is none of bf16, fp8, int4");
  refused({"decode", "--shape", "third", "--routing", "overlapped"}, "--rows above 1");
  refused({"decode", demo_model(), "--rows", "2", "--routing", "overlapped"}, "chooses itself");
  std::ofstream(file) << R"([{"family": "x"}])";
  refused(work, "prompt 1: has neither prompt_ids nor messages");
}

// Guesses among the ids of a file: so few that most guesses are wrong, and as many are made.
TEST(Bench, AcceptTakesAFileOfIds) {
  const std::string prompts = testing::TempDir() + "accept-ids-prompts.jsonl",
                    ids = testing::TempDir() + "accept-ids.txt";
  std::ofstream(prompts) << R"({"family": "counting", "prompt": "Count from 20 to 40."})";
  const auto accept = [&](const std::string& text, std::vector<std::string> more) {
    std::ofstream(ids) << text;
    std::vector<std::string> arguments = {"accept",    demo_model(), "--prompts", prompts,
                                          "--methods", "mtp:2",      "--tokens",  "30",
                                          "--repeat",  "1",          "--csv"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return bench(std::move(arguments));
  };
  const ProgramResult all = accept("", {}), few = accept("1 2\n3\n", {"--draft-head-rows", ids});
  ASSERT_EQ(all.exit_code, 0) << all.err;
  ASSERT_EQ(few.exit_code, 0) << few.err;
  const auto figures = [](const std::string& csv) { return csv.substr(csv.find(",counting,")); };
  EXPECT_THAT(figures(few.out), HasSubstr(",29,29,"));  // tokens, and as many steps
  EXPECT_THAT(figures(all.out), Not(HasSubstr(",29,29,")));
  for (const auto& [text, why] : {std::pair("1 2x", "\"2x\" is no token id of this model"),
                                  std::pair("", "holds no token ids")}) {
    const ProgramResult refused = accept(text, {"--draft-head-rows", ids});
    EXPECT_NE(refused.exit_code, 0);
    EXPECT_THAT(refused.err, HasSubstr("--draft-head-rows: " + ids + ": "));
    EXPECT_THAT(refused.err, HasSubstr(why));
  }
  EXPECT_THAT(accept("", {"--draft-head-rows", "0"}).err,
              HasSubstr("--draft-head-rows: 0 is not positive"));
  EXPECT_THAT(accept("", {"--draft-head-rows", "/nope"}).err, HasSubstr("/nope"));
}

TEST(Bench, DecodesACheckpoint) {
  const Json json = bench_json({"decode", demo_model(), "--tokens", "4", "--threads", "1"});
  EXPECT_EQ(json.find("bench")->as_string(), "decode");
  EXPECT_EQ(json.find("threads")->as_integer(), 1);
  EXPECT_EQ(json.find("processors")->as_string(), "1 thread");
  expect_shares_agree(json, "gb_per_second", "ceiling_gb_per_second");
  const double bytes = number(json, "bytes_per_token");
  EXPECT_NEAR(number(json, "gb_per_second"), bytes * number(json, "tokens_per_second") / 1e9, 1e-6);
  // What `pewter inspect` counts for a token, the state in and out, and a short context.
  const Json inspect = Json::parse(run_program({"inspect", demo_model(), "--json"}).out).value();
  const double weights = number(*inspect.find("total_without_prediction_layer"), "token_bytes");
  const double state = 2 * (number(inspect, "recurrent_bytes_per_sequence") +
                            number(inspect, "convolution_bytes_per_sequence"));
  const double kv = number(inspect, "kv_bytes_per_token") * (1.5 + 1);
  EXPECT_NEAR(bytes, weights + state + kv, 1);
}

TEST(Bench, PrefillsACheckpoint) {
  const Json json = bench_json({"prefill", demo_model(), "--tokens", "32", "--depth", "64"});
  EXPECT_EQ(json.find("bench")->as_string(), "prefill");
  EXPECT_EQ(json.find("depth")->as_integer(), 64);
  expect_shares_agree(json, "flops_per_second", "ceiling_flops_per_second");
  EXPECT_FALSE(json.find("ceiling_instruction")->as_string().empty());
}

TEST(Bench, MakesAShapeAndCountsItsExperts) {
  const Json json = bench_json({"decode", "--shape", "third", "--format", "int4", "--tokens", "2",
                                "--rows", "4", "--sequences", "2"});
  EXPECT_EQ(json.find("shape")->as_string(), "third");
  EXPECT_EQ(json.find("format")->as_string(), "int4");
  EXPECT_EQ(json.find("formats")->find("routed_experts")->as_string(), "int4_group128");
  EXPECT_EQ(json.find("formats")->find("lm_head")->as_string(), "int8_row");
  // Eight rows choose 42 of 64 experts when they choose evenly.
  EXPECT_NEAR(number(json, "distinct_experts"), 42, 8);
  const Json& step = *json.find("step_bytes");
  const double total = number(step, "weights") + number(step, "experts") + number(step, "state") +
                       number(step, "kv");
  EXPECT_NEAR(number(json, "bytes_per_token"), total / 8, 1);
}

// One row behind a depth: the stages' bytes are those of the step, and times add up.
TEST(Bench, ProfilesAStep) {
  const Json json = bench_json(
      {"decode", demo_model(), "--tokens", "1", "--depth", "100", "--threads", "1", "--profile"});
  const Json& profile = *json.find("profile");
  EXPECT_NEAR(number(profile, "bytes_per_step"), number(json, "bytes_per_token"), 1);
  EXPECT_NEAR(number(profile, "step_us"), 1e6 / number(json, "tokens_per_second"), 1e-3);
  EXPECT_NEAR(number(profile, "unexplained_us"),
              number(profile, "step_us") - number(profile, "stages_us"), 1e-3);
  double sum = 0;
  std::vector<std::string> names;
  for (const Json& stage : profile.find("stages")->as_array()) {
    names.push_back(stage.find("stage")->as_string());
    sum += number(stage, "us_per_call") * number(stage, "calls");
    EXPECT_NEAR(number(stage, "gb_per_second"),
                number(stage, "bytes_per_call") / number(stage, "us_per_call") / 1e3, 1e-3);
    EXPECT_NEAR(number(stage, "share_of_ceiling"),
                number(stage, "gb_per_second") / number(json, "ceiling_gb_per_second"), 1e-6);
  }
  EXPECT_THAT(
      names, testing::ElementsAre("embed", "delta_in", "delta_rule", "delta_out", "route",
                                  "experts_up", "experts_down", "attention_in", "attention_prepare",
                                  "attention", "attention_out", "final_norm", "head", "sampling"));
  EXPECT_NEAR(number(profile, "stages_us"), sum, 1e-3);
}

TEST(Bench, ShowsAProfileAsTableAndCsv) {
  const std::vector<std::string> arguments = {"decode",   demo_model(), "--tokens", "1",
                                              "--repeat", "1",          "--profile"};
  const ProgramResult table = bench(arguments);
  EXPECT_EQ(table.exit_code, 0) << table.err;
  for (const char* text : {"us a call", "experts up", "of read", "unexplained", "replayed"})
    EXPECT_THAT(table.out, HasSubstr(text));
  std::vector<std::string> with_csv = arguments;
  with_csv.push_back("--csv");
  const ProgramResult csv = bench(with_csv);
  EXPECT_THAT(csv.out, testing::StartsWith("stage,calls,us_per_call,"));
  EXPECT_EQ(std::ranges::count(csv.out, '\n'), 1 + 14 + 3 + 2);  // head, stages, blocks, sums
}

TEST(Bench, ShowsATable) {
  const ProgramResult result =
      bench({"decode", demo_model(), "--tokens", "2", "--repeat", "1", "--depth", "700"});
  EXPECT_EQ(result.exit_code, 0) << result.err;
  for (const char* text : {"int4_group128: routed experts", "tok/s", "GB/s", "% ", "at depth 700"})
    EXPECT_THAT(result.out, HasSubstr(text));
}

// Memory traffic of one op alone is that of its matrix.
TEST(BenchKernels, MeasuresProductsOfOneFormat) {
  const ProgramResult result = bench({"kernels", "--device", "cpu", "--shape", "third", "--format",
                                      "int4", "--only", "attention_out", "--rows", "2", "--json"});
  ASSERT_EQ(result.exit_code, 0) << result.err;
  const Json json = Json::parse(result.out).value();
  EXPECT_GT(number(json, "read_gb_per_second"), 0);
  EXPECT_GT(number(json, "copy_gb_per_second"), 0);
  const Json::Array& kernels = json.find("kernels")->as_array();
  ASSERT_EQ(kernels.size(), 1u);
  const Json& kernel = kernels[0];
  EXPECT_EQ(kernel.find("op")->as_string(), "attention_out");
  EXPECT_EQ(kernel.find("format")->as_string(), "int4");
  EXPECT_EQ(number(kernel, "rows"), 2);
  EXPECT_EQ(number(kernel, "bytes"), 1024 * 2048 / 2 + 1024 * 2048 / 128 * 2);
  EXPECT_NEAR(number(kernel, "gb_per_second"), number(kernel, "bytes") / number(kernel, "us") / 1e3,
              1e-6);
  EXPECT_NEAR(number(kernel, "share_of_copy"),
              number(kernel, "gb_per_second") / number(json, "copy_gb_per_second"), 1e-9);
  EXPECT_NEAR(number(kernel, "share_of_read"),
              number(kernel, "gb_per_second") / number(json, "read_gb_per_second"), 1e-9);
}

TEST(BenchKernels, MeasuresStagesAtADepth) {
  const std::vector<std::string> arguments = {"kernels", "--device", "cpu",     "--shape",
                                              "third",   "--only",   "experts", "--depth",
                                              "64",      "--rows",   "2"};
  const ProgramResult table = bench(arguments);
  ASSERT_EQ(table.exit_code, 0) << table.err;
  for (const char* text : {"experts up", "experts down", "hybrid", "of copy", "of read"})
    EXPECT_THAT(table.out, HasSubstr(text));
  std::vector<std::string> with_csv = arguments;
  with_csv.push_back("--csv");
  const ProgramResult csv = bench(with_csv);
  EXPECT_THAT(csv.out, testing::StartsWith("op,shape,format,"));
  EXPECT_THAT(csv.out, HasSubstr("\nexperts_up,third,hybrid,0,0,2,64,"));
  EXPECT_EQ(std::ranges::count(csv.out, '\n'), 3);
}

struct Refusal {
  std::vector<std::string> arguments;
  int exit_code;
  const char* message;
};

TEST(Bench, RefusesNonsense) {
  const std::vector<Refusal> refusals = {
      {{}, 2, "WHAT"},
      {{"encode", "--shape", "third"}, 2, "\"encode\" is none of decode, prefill, drafting"},
      {{"decode"}, 2, "neither a MODEL nor a --shape"},
      {{"decode", "x", "--shape", "third"}, 2, "exclude each other"},
      {{"decode", "x", "--format", "int4"}, 2, "belong to --shape"},
      {{"decode", "x", "--head", "int4"}, 2, "--lm-head: of a MODEL"},
      {{"decode", "x", "--unique-layers", "4"}, 2, "belong to --shape"},
      {{"prefill", "--shape", "third", "--rows", "2"}, 2, "belong to decode"},
      {{"prefill", "--shape", "third", "--sequences", "2"}, 2, "belong to decode"},
      {{"prefill", "--shape", "third", "--profile"}, 2, "--profile belongs to decode"},
      {{"decode", "--shape", "third", "--csv"}, 2, "--csv belongs to --profile"},
      {{"decode", "--shape", "third", "--profile", "--csv", "--json"}, 2, "exclude each other"},
      {{"decode", "--shape", "third", "--tokens", "0"}, 2, "--tokens"},
      {{"decode", "--shape", "third", "--rows", "17"}, 2, "--rows: 17 is outside [1, 16]"},
      {{"decode", "--shape", "third", "--sequences", "0"}, 2, "--sequences: 0 is outside"},
      {{"decode", "--shape", "third", "--repeat", "0"}, 2, "--repeat"},
      {{"decode", "--shape", "third", "--depth", "-1"}, 2, "--depth"},
      {{"decode", "--shape", "third", "--threads", "0"}, 2, "--threads: 0 is outside"},
      {{"decode", "--shape", "third", "--unique-layers", "0"}, 2, "--unique-layers: 0 is outside"},
      {{"decode", "--shape", "fourth"}, 1, "shape: \"fourth\" is none of third, "},
      {{"decode", "--shape", "third", "--format", "int5"}, 1, "format: \"int5\" is none of bf16"},
      {{"decode", "--shape", "third", "--device", "abacus"}, 1, "abacus"},
      {{"decode", "--shape", "third", "--unique-layers", "17"}, 1, "--unique-layers: 17 of 16"},
      {{"decode", "--shape", "third", "--unique-layers", "3"}, 1, "no full attention layer"},
      {{"decode", "--shape", "third", "--depth", "262144"}, 1, "262208 positions"},
      {{"decode", "--shape", "qwen3.5-0.8b", "--lm-head", "int4"}, 1, "--lm-head: "},
      {{"decode", "--shape", "third", "--lm-head", "int5"}, 1, "\"int5\" is none of bf16, int8"},
      {{"decode", "x", "--lm-head", "fp8"}, 2, "--lm-head: of a MODEL"},
      {{"decode", "x", "--only", "head"}, 2, "--only belongs to kernels"},
      {{"drafting", "x"}, 2, "drafting needs --speculate"},
      {{"decode", "x", "--acceptance", "0.5"}, 2, "--acceptance belongs to drafting"},
      {{"kernels", "x"}, 2, "a MODEL belongs to decode and prefill"},
      {{"kernels", "--repeat", "3"}, 2, "belong to decode and prefill"},
      {{"kernels", "--rows", "17"}, 2, "--rows: 17 is outside [1, 16]"},
      {{"kernels", "--csv", "--json"}, 2, "exclude each other"},
      {{"kernels", "--shape", "fourth"}, 1, "shape: \"fourth\" is none of third, "},
      {{"kernels", "--format", "hybrid"}, 1, "\"hybrid\" is none of bf16, fp8, int4, int8"},
      {{"kernels", "--device", "abacus"}, 1, "abacus"},
      {{"kernels", "--shape", "third", "--only", "abacus"}, 1, "no op of third is named like"},
      {{"decode", "/nonexistent"}, 1, "/nonexistent"},
  };
  for (const Refusal& refusal : refusals) {
    const ProgramResult result = bench(refusal.arguments);
    EXPECT_EQ(result.exit_code, refusal.exit_code) << result.err;
    EXPECT_THAT(result.err, HasSubstr(refusal.message));
    EXPECT_THAT(result.out, IsEmpty());
  }
}

// A quarter of a terabyte of weights and more of state fit on few machines.
TEST(Bench, RefusesWhatDoesNotFitWithTheNumbers) {
  const ProgramResult result = bench({"decode", "--shape", "qwen3.5-122b", "--format", "bf16",
                                      "--sequences", "1024", "--depth", "200000"});
  EXPECT_EQ(result.exit_code, 1);
  EXPECT_THAT(result.err, HasSubstr("--shape qwen3.5-122b --format bf16 needs "));
  EXPECT_THAT(result.err, HasSubstr("(weights 243 GB"));
  EXPECT_THAT(result.err, HasSubstr("there is "));
}

}  // namespace
}  // namespace pewter::cli_test
