// Flags from a file and from the environment, and who wins.
#include "cli/argument_sources.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>

#include "base/file.h"
#include "checkpoint/testing/temp_directory.h"
#include "cli/accepted_flags.h"
#include "program.h"

namespace pewter::cli_test {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

const Arguments kKnown = {"--model",   "--port",  "--max-model-len",      "--served-model-name",
                          "--api-key", "--trust", "--speculative-config", "--template"};

Arguments config(const std::string& text) {
  const Result<Arguments> arguments = config_arguments(text, kKnown);
  EXPECT_TRUE(arguments) << arguments.error().message;
  return arguments ? *arguments : Arguments{};
}
std::string refused(const std::string& text) {
  const Result<Arguments> arguments = config_arguments(text, kKnown);
  return arguments ? "accepted" : arguments.error().message;
}

TEST(ConfigFile, BecomesArguments) {
  EXPECT_THAT(
      config("# a comment\n---\nmodel: /a b/c # and another\nport: 8001\r\n"
             "max_model_len: '64k'\n\ntrust: true\napi-key: \"a\\tb#c\"\ntemplate: it''s\n"),
      ElementsAre("--model=/a b/c", "--port=8001", "--max-model-len=64k", "--trust=true",
                  "--api-key=a\tb#c", "--template=it''s"));
  EXPECT_THAT(config("template: 'it''s # here'"), ElementsAre("--template=it's # here"));
  EXPECT_THAT(config("port: null\nmodel: ~\ntrust:\n"), IsEmpty());
  EXPECT_THAT(config(""), IsEmpty());
}

TEST(ConfigFile, HasListsAndObjects) {
  const auto names = ElementsAre("--served-model-name=a", "--served-model-name=b c");
  EXPECT_THAT(config("served-model-name: [a, 'b c']"), names);
  EXPECT_THAT(config("served-model-name: [\"a\", \"b c\"]"), names);
  EXPECT_THAT(config("served-model-name:\n  - a\n  - \"b c\"\n"), names);
  EXPECT_THAT(config("served-model-name:\n- a\n- b c\n"), names);
  EXPECT_THAT(config("speculative-config: {\"method\": \"mtp\"}\nport: 1"),
              ElementsAre("--speculative-config={\"method\": \"mtp\"}", "--port=1"));
  EXPECT_THAT(
      config("speculative-config:\n  method: mtp\n  num: 3\n  on: true\nport: 1"),
      ElementsAre(R"(--speculative-config={"method":"mtp","num":3,"on":true})", "--port=1"));
}

TEST(ConfigFile, SaysWhatIsWrongAndWhere) {
  EXPECT_EQ(refused("port: 1\nprot: 2"), "line 2: there is no flag --prot");
  EXPECT_THAT(refused("port"), HasSubstr("line 1: want a line like"));
  EXPECT_THAT(refused("\n\nport: 'a"), HasSubstr("line 3: the quotes"));
  EXPECT_THAT(refused("port: \"a"), HasSubstr("line 1: the quotes"));
  EXPECT_THAT(refused("port: 1\n  a: b"), HasSubstr("line 2: indented"));
  EXPECT_THAT(refused("port: [1,"), HasSubstr("line 1: a list that does not end"));
  EXPECT_THAT(refused("port:\n  nothing"), HasSubstr("line 2: want \"- item\""));
}

TEST(Environment, BecomesArguments) {
  const std::map<std::string, const char*> variables = {
      {"PEWTER_MAX_MODEL_LEN", "8k"}, {"PEWTER_PORT", ""}, {"MODEL", "x"}};
  const auto arguments = environment_arguments(kKnown, [&](const char* name) -> const char* {
    const auto at = variables.find(name);
    return at == variables.end() ? nullptr : at->second;
  });
  EXPECT_THAT(arguments, ElementsAre("--max-model-len=8k"));
}

TEST(ArgumentLayers, HigherOnesWin) {
  EXPECT_THAT(with_defaults({"serve", "m", "--port", "1", "--api-key=a"},
                            {"--port=2", "--api-key=b", "--trust=true"}),
              ElementsAre("serve", "m", "--port", "1", "--api-key=a", "--trust=true"));
  EXPECT_EQ(value_of("--config", {"serve", "--config", "a", "--config=b"}), "b");
  EXPECT_EQ(value_of("--config", {"serve", "--config"}), "");
  EXPECT_EQ(value_of("--config", {"serve", "--configure", "a"}), "");
}

TEST(AcceptedFlags, AreHeldToWhatIsTrue) {
  EXPECT_TRUE(check_accepted_flags({{"--tensor-parallel-size", "1"}, {"--enforce-eager", ""}}));
  const Status two = check_accepted_flags({{"--tensor-parallel-size", "2"}});
  ASSERT_FALSE(two);
  EXPECT_THAT(two.error().message,
              HasSubstr("--tensor-parallel-size: this server cannot do \"2\""));
  EXPECT_FALSE(check_accepted_flags({{"--kv-cache-dtype", "fp8"}}));
  EXPECT_FALSE(check_accepted_flags({{"--kv-cache-dtype", "auto bfloat16x"}}));
  EXPECT_THAT(accepted_notes({{"--trust-remote-code", ""}}),
              ElementsAre(HasSubstr("--trust-remote-code changes nothing: ")));
}

// The program itself: a usage error is the last thing that shows which values have arrived.
TEST(ServeArguments, ComeFromEverywhere) {
  const TempDirectory directory;
  directory.write("server.yaml", "model: m\nport: 70000\n");
  const auto complaint = [&](const Arguments& more, const char* port_variable = nullptr) {
    Arguments arguments = {"serve", "--config", directory.path("server.yaml")};
    arguments.insert(arguments.end(), more.begin(), more.end());
    if (port_variable != nullptr) ::setenv("PEWTER_PORT", port_variable, /*replace=*/1);
    const ProgramResult done = run_program(arguments);
    ::unsetenv("PEWTER_PORT");
    EXPECT_EQ(done.exit_code, 2);
    return done.err;
  };
  EXPECT_THAT(complaint({}), HasSubstr("--port: 70000 is outside"));
  EXPECT_THAT(complaint({}, "70001"), HasSubstr("--port: 70001 is outside"));
  EXPECT_THAT(complaint({"--port", "70002"}, "70001"), HasSubstr("--port: 70002 is outside"));
  EXPECT_THAT(complaint({"--port", "1", "-tp", "4"}), HasSubstr("cannot do \"4\""));
  EXPECT_THAT(complaint({"--port", "1", "--allow-credentials"}), HasSubstr("--allowed-origins"));
  EXPECT_THAT(complaint({"--port", "1", "--reasoning-effort-budgets", "{\"low\": \"x\"}"}),
              HasSubstr("low: want an integer"));
  for (const auto& [config, word] :
       {std::pair("{\"think_end_str\": \"stop\"}", "ends with </think>"),
        {"{\"think_start_str\": \"[\"}", "begins with <think>"},
        {"{\"end\": \"x\"}", "unknown field \"end\""},
        {"{\"think_end_str\": 5}", "think_end_str: want a string"}})
    EXPECT_THAT(complaint({"--port", "1", "--reasoning-config", config}), HasSubstr(word));
}

}  // namespace
}  // namespace pewter::cli_test
