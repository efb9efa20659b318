#include "cli/conversation.h"

namespace pewter {
namespace {

Json message(std::string_view role, const std::string& content) {
  return Json::Object{{"role", role}, {"content", content}};
}

}  // namespace

Json Conversation::messages(const std::string& question) const {
  Json::Array messages;
  if (!system_.empty()) messages.push_back(message("system", system_));
  for (const Turn& turn : turns_) {
    messages.push_back(message("user", turn.question));
    messages.push_back(message("assistant", turn.answer));
    messages.back().set("reasoning_content", turn.reasoning);
  }
  messages.push_back(message("user", question));
  return messages;
}

std::string Conversation::take_back() {
  if (turns_.empty()) return {};
  std::string question = std::move(turns_.back().question);
  turns_.pop_back();
  return question;
}

Result<Answer> Conversation::ask(const std::string& question, const AnswerOptions& options,
                                 const AnswerHooks& hooks) {
  TRY_ASSIGN(
      const RenderedPrompt prompt,
      model_.render({.messages = messages(question), .tools = tools_, .thinking = thinking_}));
  TRY_ASSIGN(Answer answer, generate_answer(model_, prompt, options, hooks));
  const bool stopped = answer.completion.reason == FinishReason::kCancelled;
  if (!stopped || !answer.text.empty())
    turns_.push_back({.question = question, .reasoning = answer.reasoning, .answer = answer.text});
  return answer;
}

}  // namespace pewter
