#include "cli/chat.h"

#include <unistd.h>

#include <algorithm>
#include <array>

#include "base/blanks.h"
#include "base/utf8.h"
#include "cli/command.h"
#include "cli/terminal.h"

namespace pewter {
namespace {

constexpr std::string_view kPrompt = "> ", kContinued = "… ", kNone = "none";

class Chat {
 public:
  Chat(Conversation& conversation, const ChatOptions& options)
      : conversation_(conversation), options_(options) {}
  int run();

 private:
  struct SlashCommand {
    std::string_view name, argument, help;
    void (Chat::*run)(std::string_view argument);
  };
  static std::span<const SlashCommand> slash_commands();

  bool read_message(std::string& message);
  void obey(std::string_view line);
  void answer(const std::string& question);
  void say(std::string_view text) { write_text(STDERR_FILENO, str_cat(text, "\n")); }

  void help(std::string_view);
  void leave(std::string_view) { leaving_ = true; }
  void clear(std::string_view);
  void system(std::string_view text);
  void thinking(std::string_view choice);
  void again(std::string_view);

  Conversation& conversation_;
  ChatOptions options_;
  InterruptCounter interrupts_;
  LineReader reader_;
  bool leaving_ = false;
};

std::span<const Chat::SlashCommand> Chat::slash_commands() {
  static constexpr std::array kCommands = {
      SlashCommand{"/again", "", "Answer the last question once more", &Chat::again},
      SlashCommand{"/clear", "", "Forget the conversation; the system message stays", &Chat::clear},
      SlashCommand{"/exit", "", "Leave (so do /quit, Ctrl-D, and Ctrl-C twice)", &Chat::leave},
      SlashCommand{"/help", "", "Show this list", &Chat::help},
      SlashCommand{"/quit", "", "", &Chat::leave},
      SlashCommand{"/system", "TEXT", "Set the system message; \"none\" removes it; alone, show it",
                   &Chat::system},
      SlashCommand{"/thinking", "on|off|auto", "Let the model think before it answers",
                   &Chat::thinking},
  };
  return kCommands;
}

int Chat::run() {
  if (!options_.quiet) say("Type a message; /help shows the commands.");
  std::string message;
  while (!leaving_ && read_message(message)) {
    if (message.starts_with('/'))
      obey(message);
    else if (!message.empty())
      answer(message);
  }
  return kExitOk;
}

// A message is a line; a backslash at its end goes on with the next one. False: the person leaves.
bool Chat::read_message(std::string& message) {
  message.clear();
  interrupts_.reset();
  while (true) {
    write_text(STDERR_FILENO, message.empty() ? kPrompt : kContinued);
    std::string line;
    switch (reader_.read(line)) {
      case LineReader::Outcome::kEnd:
        write_text(STDERR_FILENO, "\n");
        return false;
      case LineReader::Outcome::kInterrupted:
        write_text(STDERR_FILENO, "\n");
        if (interrupts_.count() > 1) return false;
        if (interrupts_.count() == 1) say("(Ctrl-C again, or Ctrl-D, leaves)");
        message.clear();
        continue;
      case LineReader::Outcome::kLine:
        break;
    }
    message += replace_invalid_utf8(line);
    if (message.ends_with('\\')) {
      message.back() = '\n';
      continue;
    }
    message = std::string(trimmed(message));
    return true;
  }
}

void Chat::obey(std::string_view line) {
  const size_t end = std::min(line.find_first_of(" \t\n"), line.size());
  const std::string_view name = line.substr(0, end), argument = trimmed(line.substr(end));
  for (const SlashCommand& command : slash_commands()) {
    if (command.name != name) continue;
    if (command.argument.empty() && !argument.empty())
      say(str_cat(name, " takes nothing after it"));
    else
      (this->*command.run)(argument);
    return;
  }
  say(str_cat("There is no ", without_controls(name), "; /help shows the commands"));
}

void Chat::answer(const std::string& question) {
  AnswerPrinter printer(options_.show, options_.quiet);
  interrupts_.reset();
  const AnswerHooks hooks{
      .on_text = [&](const OutputDelta& delta) { printer.on_text(delta); },
      .on_prefill = [&](int64_t done, int64_t total) { printer.on_prefill(done, total); },
      .wanted = [&] { return interrupts_.count() == 0; }};
  const Result<Answer> answer = conversation_.ask(question, options_.answer, hooks);
  if (!answer) {
    printer.abandon();
    say(str_cat("This failed and is forgotten: ", answer.error().message));
    return;
  }
  printer.finish(*answer);
  if (answer->completion.reason == FinishReason::kCancelled && answer->text.empty())
    say("(stopped before the answer began; the question is forgotten)");
}

void Chat::help(std::string_view) {
  for (const SlashCommand& command : slash_commands()) {
    if (command.help.empty()) continue;
    std::string usage = str_cat("  ", command.name, " ", command.argument);
    usage.resize(std::max<size_t>(usage.size() + 2, 26), ' ');
    say(usage += command.help);
  }
  say("A line that ends with \\ goes on with the next. Ctrl-C stops an answer.");
}

void Chat::clear(std::string_view) {
  conversation_.clear();
  say("Forgotten.");
}

void Chat::system(std::string_view text) {
  if (text.empty()) {
    say(conversation_.system().empty() ? "No system message." : conversation_.system());
    return;
  }
  conversation_.set_system(text == kNone ? "" : std::string(text));
  say(text == kNone ? "No system message any more." : "System message set.");
}

void Chat::thinking(std::string_view choice) {
  if (choice == "on")
    conversation_.set_thinking(true);
  else if (choice == "off")
    conversation_.set_thinking(false);
  else if (choice == "auto")
    conversation_.set_thinking(std::nullopt);
  else
    say("/thinking on, off or auto");
}

void Chat::again(std::string_view) {
  const std::string question = conversation_.take_back();
  if (question.empty())
    say("There is no question yet.");
  else
    answer(question);
}

}  // namespace

int run_chat(Conversation& conversation, const ChatOptions& options) {
  return Chat(conversation, options).run();
}

}  // namespace pewter
