// The chat of `pewter run` on a terminal.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "program.h"

namespace pewter::cli_test {
namespace {

const std::string kControlC = "\x03", kControlD = "\x04";

std::vector<std::string> chat(std::vector<std::string> more = {}) {
  std::vector<std::string> arguments = {"run", demo_model(), "--temperature", "0"};
  arguments.insert(arguments.end(), more.begin(), more.end());
  return arguments;
}

// Types a line once the program asks for one.
void enter(TerminalProgram& program, const std::string& line) {
  ASSERT_TRUE(program.wait_for("> ")) << program.screen();
  program.type(line + "\n");
}

TEST(Chat, AnswersAndLeaves) {
  TerminalProgram program(chat({"--no-thinking"}));
  ASSERT_TRUE(program.wait_for("Loaded ")) << program.screen();
  enter(program, "What is the capital of France?");
  EXPECT_TRUE(program.wait_for("Paris")) << program.screen();
  EXPECT_TRUE(program.wait_for("complete]"));
  enter(program, "/exit");
  EXPECT_EQ(program.exit_code(), 0);
}

TEST(Chat, DimsTheReasoning) {
  TerminalProgram program(chat({"--thinking"}));
  enter(program, "What is the capital of France?");
  ASSERT_TRUE(program.wait_for("\x1b[2m")) << program.screen();
  ASSERT_TRUE(program.wait_for("\x1b[0m"));
  EXPECT_TRUE(program.wait_for("Paris"));
  EXPECT_TRUE(program.wait_for("complete]"));
  ASSERT_TRUE(program.wait_for("> "));
  program.type(kControlD);
  EXPECT_EQ(program.exit_code(), 0);
  EXPECT_THAT(program.screen(), testing::Not(testing::HasSubstr("</think>")));
}

TEST(Chat, ControlCStopsTheAnswerAndNotTheProgram) {
  TerminalProgram program(chat({"--no-thinking", "--ignore-eos"}));
  enter(program, "Count as far as you can.");
  ASSERT_TRUE(program.wait_for("\n"));  // the echo
  ASSERT_TRUE(program.wait_for(" "));   // a word of the answer
  program.type(kControlC);
  ASSERT_TRUE(program.wait_for("stopped]")) << program.screen();
  enter(program, "/help");
  EXPECT_TRUE(program.wait_for("/thinking on|off|auto"));
  ASSERT_TRUE(program.wait_for("> "));
  program.type(kControlC);
  ASSERT_TRUE(program.wait_for("(Ctrl-C again"));
  ASSERT_TRUE(program.wait_for("> "));
  program.type(kControlC);
  EXPECT_EQ(program.exit_code(), 0);
}

TEST(Chat, CommandsChangeTheConversation) {
  TerminalProgram program(chat());
  enter(program, "/system Be brief.");
  EXPECT_TRUE(program.wait_for("System message set."));
  enter(program, "/system");
  EXPECT_TRUE(program.wait_for("\nBe brief."));
  enter(program, "/thinking maybe");
  EXPECT_TRUE(program.wait_for("on, off or auto"));
  enter(program, "/thinking off");
  enter(program, "/dance");
  EXPECT_TRUE(program.wait_for("There is no /dance"));
  enter(program, "/again");
  EXPECT_TRUE(program.wait_for("There is no question yet."));
  enter(program, "/system none");
  EXPECT_TRUE(program.wait_for("No system message any more."));
  enter(program, "\\\nWhat is the capital of France?");
  EXPECT_TRUE(program.wait_for("Paris")) << program.screen();
  EXPECT_TRUE(program.wait_for("complete]"));
  enter(program, "/again");
  EXPECT_TRUE(program.wait_for("Paris")) << program.screen();
  EXPECT_TRUE(program.wait_for("complete]"));
  enter(program, "/clear");
  EXPECT_TRUE(program.wait_for("Forgotten."));
  enter(program, "/quit");
  EXPECT_EQ(program.exit_code(), 0);
}

TEST(Chat, AFailedAnswerDoesNotEndIt) {
  TerminalProgram program(chat({"--no-thinking", "--max-model-len", "64"}));
  std::string question;
  for (int i = 0; i < 60; ++i) question += "one two ";
  enter(program, question);
  ASSERT_TRUE(program.wait_for("maximum context length is 64 tokens")) << program.screen();
  enter(program, "Hi");
  EXPECT_TRUE(program.wait_for("tok/s")) << program.screen();
  enter(program, "/exit");
  EXPECT_EQ(program.exit_code(), 0);
}

TEST(OneAnswer, ControlCExitsWith130) {
  TerminalProgram program(chat({"--no-thinking", "--ignore-eos", "Count as far as you can."}));
  ASSERT_TRUE(program.wait_for("Loaded "));
  ASSERT_TRUE(program.wait_for("/s"));
  ASSERT_TRUE(program.wait_for(" "));
  program.type(kControlC);
  EXPECT_TRUE(program.wait_for("stopped]")) << program.screen();
  EXPECT_EQ(program.exit_code(), 130);
}

TEST(OneAnswer, JsonWithoutAPromptIsAUsageError) {
  TerminalProgram program(chat({"--json"}));
  EXPECT_TRUE(program.wait_for("--json needs a PROMPT")) << program.screen();
  EXPECT_EQ(program.exit_code(), 2);
}

}  // namespace
}  // namespace pewter::cli_test
