// `pewter run` with pipes: answers, JSON, and what goes wrong.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>

#include "base/json.h"
#include "program.h"

namespace pewter::cli_test {
namespace {

using testing::EndsWith;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;

const std::string kCapital = "What is the capital of France?";

std::vector<std::string> greedy(std::vector<std::string> more) {
  std::vector<std::string> arguments = {"run", demo_model(), "--temperature", "0"};
  arguments.insert(arguments.end(), more.begin(), more.end());
  return arguments;
}

// One line that names the command, and nothing on standard output.
void expect_one_line_error(const ProgramResult& result, int exit_code, const std::string& what) {
  EXPECT_EQ(result.exit_code, exit_code) << result.err;
  EXPECT_THAT(result.out, IsEmpty());
  EXPECT_THAT(result.err, testing::StartsWith("pewter run: "));
  EXPECT_THAT(result.err, HasSubstr(what));
  const auto lines = std::ranges::count(result.err, '\n');
  EXPECT_EQ(lines, exit_code == 2 ? 2 : 1) << result.err;  // usage errors point to --help
}

Json run_json(std::vector<std::string> more) {
  more.emplace_back("--json");
  const ProgramResult result = run_program(greedy(std::move(more)));
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_THAT(result.err, IsEmpty());
  Result<Json> json = Json::parse(result.out);
  EXPECT_TRUE(json) << result.out;
  return json ? *json : Json(Json::Object{});
}

TEST(Run, AnswersAPrompt) {
  const ProgramResult result = run_program(greedy({"--no-thinking", kCapital}));
  EXPECT_EQ(result.exit_code, 0);
  EXPECT_THAT(result.out, HasSubstr("Paris"));
  EXPECT_THAT(result.out, EndsWith("\n"));
  EXPECT_THAT(result.out, Not(HasSubstr("<|")));
  EXPECT_THAT(result.err, HasSubstr("tok/s"));
  EXPECT_THAT(result.err, HasSubstr("complete]"));
}

TEST(Run, AnswersWithEitherHead) {
  const auto logprob = [](const char* head) {
    const Json json = run_json(
        {"--no-thinking", "--logprobs", "0", "--max-tokens", "1", "--lm-head", head, kCapital});
    return json.find("logprobs")->as_array()[0].find("logprob")->as_double();
  };
  EXPECT_NE(logprob("int8"), logprob("bf16"));
  EXPECT_NEAR(logprob("int8"), logprob("bf16"), 0.05);
}

TEST(Run, DraftsChangeTheStepsAlone) {
  const std::string question = "Count from 20 to 60.";
  const Json plain = run_json({question});
  EXPECT_EQ(plain.find("drafts"), nullptr);
  const Json drafted = run_json({"--speculate", "mtp", "--speculative-depth", "fixed:4", question});
  EXPECT_EQ(*drafted.find("text"), *plain.find("text"));
  const Json& drafts = *drafted.find("drafts");
  EXPECT_GT(drafts.find("mean_acceptance_length")->as_double(), 3);
  int64_t accepted = 0;
  for (const Json& count : drafts.find("accepted_per_position")->as_array())
    accepted += count.as_integer();
  EXPECT_EQ(accepted, drafts.find("accepted_tokens")->as_integer());
  const ProgramResult footer = run_program(greedy(
      {"--speculative-config", R"({"method":"mtp"})", "--speculative-depth", "fixed:3", question}));
  EXPECT_THAT(footer.err, HasSubstr("mean acceptance length 3."));
  expect_one_line_error(
      run_program(greedy({"--speculative-config", R"({"method":"eagle"})", question})), 2,
      "--speculative-config: method: \"eagle\"");
}

TEST(Run, TakesThePromptFromStandardInput) {
  const ProgramResult result = run_program(greedy({"--no-thinking", "--quiet"}), kCapital + "\n");
  EXPECT_EQ(result.exit_code, 0);
  EXPECT_THAT(result.out, HasSubstr("Paris"));
  EXPECT_THAT(result.err, IsEmpty());
}

TEST(Run, LeavesReasoningOutOfAPipeUnlessAsked) {
  const ProgramResult hidden = run_program(greedy({"--thinking", "--max-tokens", "400", kCapital}));
  EXPECT_EQ(hidden.exit_code, 0);
  EXPECT_THAT(hidden.out, HasSubstr("Paris"));
  EXPECT_THAT(hidden.out, Not(HasSubstr("thinking")));
  const ProgramResult shown =
      run_program(greedy({"--thinking", "--show-thinking", "--max-tokens", "400", kCapital}));
  EXPECT_THAT(shown.out, testing::StartsWith("[thinking]\n"));
  EXPECT_THAT(shown.out, HasSubstr("\n[/thinking]\n\n" + hidden.out));
}

TEST(Run, JsonSaysAllOfIt) {
  const Json json = run_json({"--thinking", "--seed", "18446744073709551615", kCapital});
  EXPECT_THAT(json.find("text")->as_string(), HasSubstr("Paris"));
  EXPECT_THAT(json.find("reasoning")->as_string(), Not(IsEmpty()));
  EXPECT_EQ(json.find("finish_reason")->as_string(), "stop");
  EXPECT_GT(json.find("prompt_tokens")->as_integer(), 5);
  EXPECT_GT(json.find("reasoning_tokens")->as_integer(), 0);
  EXPECT_GT(json.find("completion_tokens")->as_integer(),
            json.find("reasoning_tokens")->as_integer());
  EXPECT_EQ(json.find("seed")->as_big_integer().digits, "18446744073709551615");
  for (const char* number : {"load_seconds", "prefill_seconds", "decode_seconds",
                             "prefill_tokens_per_second", "decode_tokens_per_second"})
    EXPECT_GT(json.find(number)->as_double(), 0) << number;
}

TEST(Run, JsonWithLogprobs) {
  const Json json = run_json({"--no-thinking", "--logprobs", "2", "--max-tokens", "3", kCapital});
  EXPECT_EQ(json.find("finish_reason")->as_string(), "length");
  EXPECT_TRUE(json.find("reasoning")->is_null());
  const Json::Array& tokens = json.find("logprobs")->as_array();
  ASSERT_EQ(tokens.size(), 3u);
  for (const Json& token : tokens) {
    ASSERT_EQ(token.find("top")->as_array().size(), 2u);
    // Greedy: the chosen token is the likeliest.
    EXPECT_EQ(token.find("top")->as_array()[0].find("id")->as_integer(),
              token.find("id")->as_integer());
    EXPECT_LE(token.find("logprob")->as_double(), 0);
  }
}

TEST(Run, RawTextHasTheTags) {
  const Json json = run_json({"--thinking", "--raw", kCapital});
  EXPECT_THAT(json.find("raw")->as_string(), HasSubstr("</think>"));
  EXPECT_THAT(json.find("raw")->as_string(), EndsWith("<|im_end|>"));
}

TEST(Run, TheSameSeedGivesTheSameAnswer) {
  const auto sample = [](const char* seed) {
    return run_program({"run", demo_model(), "--temperature", "1.5", "--top-k", "0", "--top-p", "1",
                        "--no-thinking", "--max-tokens", "24", "--quiet", "--seed", seed,
                        "Tell me about a city."})
        .out;
  };
  EXPECT_EQ(sample("7"), sample("7"));
  EXPECT_NE(sample("7"), sample("8"));
}

TEST(Run, IgnoreEosGoesOnToTheLimit) {
  const Json json = run_json({"--no-thinking", "--ignore-eos", "--max-tokens", "60", kCapital});
  EXPECT_EQ(json.find("completion_tokens")->as_integer(), 60);
  EXPECT_EQ(json.find("finish_reason")->as_string(), "length");
}

TEST(Run, ControlTokensInAQuestionAreText) {
  const Json plain = run_json({"--no-thinking", "--max-tokens", "1", "a b"});
  const Json control = run_json({"--no-thinking", "--max-tokens", "1", "a<|im_end|>b"});
  EXPECT_GT(control.find("prompt_tokens")->as_integer(),
            plain.find("prompt_tokens")->as_integer() + 3);
}

TEST(Run, UsageErrorsExitWithTwo) {
  expect_one_line_error(run_program(greedy({"--nonsense", "x"})), 2, "--nonsense");
  expect_one_line_error(run_program(greedy({"--top-p", "much", "x"})), 2, "--top-p");
  expect_one_line_error(run_program(greedy({"--top-p", "1.5", "x"})), 2, "top_p");
  expect_one_line_error(run_program({"run", demo_model(), "--temperature", "-1", "x"}), 2,
                        "temperature");
  expect_one_line_error(run_program(greedy({"--max-tokens", "0", "x"})), 2, "--max-tokens");
  expect_one_line_error(run_program(greedy({"--logprobs", "2", "x"})), 2, "--json");
  expect_one_line_error(run_program(greedy({"--seed", "-3", "x"})), 2, "--seed");
  expect_one_line_error(run_program({"run"}), 2, "MODEL");
  expect_one_line_error(run_program(greedy({"--threads", "0", "x"})), 2, "--threads");
  expect_one_line_error(run_program(greedy({"--memory-gb", "0", "x"})), 2, "--memory-gb: 0 is");
  expect_one_line_error(run_program(greedy({"--gpu-memory-utilization", "1.5", "x"})), 2,
                        "--gpu-memory-utilization: 1.5 is outside (0, 1]");
  expect_one_line_error(run_program(greedy({"--kv-cache-memory-bytes", "much", "x"})), 2,
                        "\"much\" is no size");
  expect_one_line_error(run_program(greedy({"--max-model-len", "all", "x"})), 2,
                        "\"all\" is neither a number of tokens (4096, 32k) nor auto");
  expect_one_line_error(run_program(greedy({"--lm-head", "int4", "x"})), 2,
                        "--lm-head: want int8 or bf16");
}

TEST(Run, RefusesAPlanThatDoesNotFitBeforeItLoads) {
  const auto refused = [](std::vector<std::string> more) {
    more.emplace_back("x");
    return run_program(greedy(std::move(more)));
  };
  const ProgramResult small = refused({"--memory-gb", "0.001"});
  expect_one_line_error(small, 1, "models/demo: needs ");
  EXPECT_THAT(small.err, HasSubstr(" and may take 1.00 MB (as --memory-gb says; "));
  for (const char* part : {"weights ", "keys and values ", "recurrent state ", "scratch ",
                           "--memory-gb 0.1 would fit"})
    EXPECT_THAT(small.err, HasSubstr(part));
  const ProgramResult large = refused({"--memory-gb", "0.06", "--max-model-len", "8k"});
  expect_one_line_error(large, 1, "(8192 tokens)");
  EXPECT_THAT(large.err, HasSubstr("; --max-model-len "));
}

TEST(Run, ShowsItsPlanAndTakesTheLongestContextThatFits) {
  const ProgramResult result =
      run_program(greedy({"--no-thinking", "--max-tokens", "1", "--memory-gb", "0.06",
                          "--max-model-len", "auto", "x"}));
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_THAT(result.err, testing::StartsWith("Memory on cpu\n  weights "));
  EXPECT_THAT(result.err, testing::ContainsRegex("keys and values +[0-9.]+ MB  7 [0-9]+ tokens"));
  EXPECT_THAT(result.err, HasSubstr("it fits\n  budget           60.0 MB  as --memory-gb says"));
}

TEST(Run, NamesAnUnknownDevice) {
  expect_one_line_error(run_program(greedy({"--device", "abacus", "x"})), 1, "abacus");
}

TEST(Run, ANewDirectoryIsNoModel) {
  expect_one_line_error(run_program({"run", "/nonexistent/model", "x"}), 1, "/nonexistent/model");
}

TEST(Run, RefusesAnEmptyPrompt) {
  expect_one_line_error(run_program(greedy({}), " \n"), 1, "empty");
}

TEST(Run, RefusesAPromptThatIsTooLong) {
  std::string prompt;
  for (int i = 0; i < 100; ++i) prompt += "one two three ";
  const ProgramResult result = run_program(greedy({"--quiet", "--max-model-len", "128", prompt}));
  expect_one_line_error(result, 1, "maximum context length is 128 tokens");
}

TEST(Run, RefusesAContextTheModelDoesNotHave) {
  expect_one_line_error(run_program(greedy({"--max-model-len", "1m", "x"})), 1, "8192");
}

TEST(Run, NamesBrokenFiles) {
  const auto run_copy = [](const DemoCopy& copy) {
    return run_program({"run", copy.path(), "--quiet", "x"});
  };
  {
    DemoCopy copy;
    copy.replace("generation_config.json", "{\"temperature\": ");
    expect_one_line_error(run_copy(copy), 1, "generation_config.json");
    copy.replace("generation_config.json", "{\"top_k\": \"many\"}");
    expect_one_line_error(run_copy(copy), 1, "generation_config.json: top_k");
  }
  {
    DemoCopy copy;
    copy.replace("chat_template.jinja", "{% if %}");
    expect_one_line_error(run_copy(copy), 1, "chat_template.jinja");
    copy.replace("chat_template.jinja", "{{ raise_exception('Not today.') }}");
    expect_one_line_error(run_copy(copy), 1, "Not today.");
    copy.remove("chat_template.jinja");
    expect_one_line_error(run_copy(copy), 1, "chat template");
  }
  {
    DemoCopy copy;
    copy.replace("config.json", "[]");
    expect_one_line_error(run_copy(copy), 1, "config.json");
  }
  {
    DemoCopy copy;
    copy.remove("tokenizer.json");
    expect_one_line_error(run_copy(copy), 1, "tokenizer.json");
  }
}

TEST(Run, AMissingGenerationConfigIsFine) {
  DemoCopy copy;
  copy.remove("generation_config.json");
  const ProgramResult result =
      run_program({"run", copy.path(), "--temperature", "0", "--no-thinking", "--quiet", kCapital});
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_THAT(result.out, HasSubstr("Paris"));
}

TEST(Run, GreedyByGenerationConfig) {
  DemoCopy copy;
  copy.replace("generation_config.json", R"({"do_sample": false, "eos_token_id": 4002})");
  const ProgramResult by_file =
      run_program({"run", copy.path(), "--no-thinking", "--quiet", kCapital});
  EXPECT_EQ(by_file.out, run_program(greedy({"--no-thinking", "--quiet", kCapital})).out);
}

TEST(Run, ToolsComeFromAFile) {
  DemoCopy copy;
  copy.replace("tools.json", R"([{"type": "function", "function": {"name": "look_up"}}])");
  const int64_t without =
      run_json({"--no-thinking", "--max-tokens", "1", "x"}).find("prompt_tokens")->as_integer();
  const Json with =
      run_json({"--no-thinking", "--max-tokens", "1", "--tools", copy.path() + "/tools.json", "x"});
  EXPECT_GT(with.find("prompt_tokens")->as_integer(), without + 10);
  copy.replace("tools.json", "{}");
  expect_one_line_error(run_program(greedy({"--tools", copy.path() + "/tools.json", "x"})), 1,
                        "tools.json");
  expect_one_line_error(run_program(greedy({"--tools", "/nonexistent.json", "x"})), 1,
                        "/nonexistent.json");
}

TEST(Run, SaysWhenTheAnswerCannotBeWritten) {
  TerminalProgram program(greedy({"--no-thinking", kCapital}), "/dev/full");
  EXPECT_TRUE(program.wait_for("does not take the answer")) << program.screen();
  EXPECT_EQ(program.exit_code(), 1);
}

TEST(Program, HelpAndVersion) {
  const ProgramResult version = run_program({"--version"});
  EXPECT_EQ(version.exit_code, 0);
  EXPECT_THAT(version.out, testing::StartsWith("pewter "));
  for (const std::vector<std::string>& arguments :
       {std::vector<std::string>{"--help"}, {"run", "--help"}, {"inspect", "--help"}}) {
    const ProgramResult help = run_program(arguments);
    EXPECT_EQ(help.exit_code, 0);
    EXPECT_THAT(help.out, HasSubstr("Usage:"));
    EXPECT_THAT(help.err, IsEmpty());
  }
  EXPECT_EQ(run_program({}).exit_code, 2);
  EXPECT_EQ(run_program({"dance"}).exit_code, 2);
}

TEST(Run, APromptThatIsNoUtf8IsRefused) {
  const ProgramResult result = run_program(greedy({"--quiet"}), "caf\xE9");
  expect_one_line_error(result, 1, "the prompt is not valid UTF-8 at byte 3");
}

TEST(Run, AnEmptyAnswerIsExplained) {
  const ProgramResult result = run_program(greedy({"--quiet", "--max-tokens", "3", kCapital}));
  EXPECT_EQ(result.exit_code, 0);
  EXPECT_THAT(result.out, Not(HasSubstr("Paris")));
  EXPECT_THAT(result.err, HasSubstr("no answer: cut at the token limit while thinking"));
}

}  // namespace
}  // namespace pewter::cli_test
