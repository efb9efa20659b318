// The interactive chat of `pewter run`: questions line by line, commands that begin with a slash.
// Ctrl-C stops an answer; at the prompt, twice, it leaves, as Ctrl-D and /exit do.
#pragma once

#include "cli/answer_printer.h"
#include "cli/conversation.h"

namespace pewter {

struct ChatOptions {
  AnswerOptions answer;
  ShowReasoning show = ShowReasoning::kOnTerminals;
  bool quiet = false;
};

// Runs until the person leaves; the exit code. An answer that fails is reported, and the chat goes
// on.
int run_chat(Conversation& conversation, const ChatOptions& options);

}  // namespace pewter
