// A conversation: the messages so far, in the shape a chat template takes them. A question that got
// no answer leaves no trace.
#pragma once

#include <optional>
#include <string>

#include "cli/answer.h"

namespace pewter {

class Conversation {
 public:
  // model outlives the conversation. tools is a JSON list of tool definitions, or null.
  Conversation(LoadedModel& model, Json tools) : model_(model), tools_(std::move(tools)) {}

  // "" removes it. A change counts from the next question on.
  void set_system(std::string text) { system_ = std::move(text); }
  const std::string& system() const { return system_; }
  // Unset: whatever the template does on its own.
  void set_thinking(std::optional<bool> thinking) { thinking_ = thinking; }
  // Forgets all questions and answers; the system message stays.
  void clear() { turns_.clear(); }
  // Takes back the last question and its answer. "" when there is none.
  std::string take_back();

  // Errors: those of the template and of generate_answer. Then, and when the answer was stopped
  // before its first word, question and answer are forgotten.
  Result<Answer> ask(const std::string& question, const AnswerOptions& options,
                     const AnswerHooks& hooks);

 private:
  struct Turn {
    std::string question, reasoning, answer;
  };
  Json messages(const std::string& question) const;

  LoadedModel& model_;
  Json tools_;
  std::string system_;
  std::optional<bool> thinking_;
  std::vector<Turn> turns_;
};

}  // namespace pewter
