// What a chat makes the engine do, whichever API it came by: the last step that all of them share,
// and the place where what a request may ask for meets what the model can do.
#pragma once

#include "server/endpoints.h"

namespace pewter::server {

struct ChatPrompt {
  std::vector<int32_t> ids;      // at least one
  std::string text;              // if the answer is to tell it
  bool opens_reasoning = false;  // it ends inside a <think> block
};

// Renders and tokenizes. Errors: kNotFound when the request names another model; the template's,
// naming `messages`.
Result<ChatPrompt> chat_prompt(const ChatRequest& request, const ServedModel& model);

// All of a plan but its format. Errors are make_request's.
Result<GenerationPlan> plan_chat(const ChatRequest& request, ChatPrompt prompt, const Model& model);

}  // namespace pewter::server
