// What a request says about thinking, in the words of every API and server that has some: whether
// to think (a variable of the chat template), and for how long.
//
//   chat_template_kwargs.enable_thinking     Qwen's templates; wins over what follows
//   enable_thinking                          SGLang, DashScope
//   thinking: {type, budget_tokens}          Anthropic; type enabled, disabled, adaptive (or auto)
//   reasoning: {effort, max_tokens, enabled} OpenAI's Responses, OpenRouter
//   reasoning_effort                         OpenAI; "none" does not think
//   thinking_token_budget, thinking_budget, reasoning_budget, thinking_budget_tokens
//                                            vLLM, SGLang, llama.cpp; -1: no limit
#pragma once

#include "server/request/fields.h"

namespace pewter::server {

struct Thinking {
  // Tokens of reasoning before it is closed by force; -1: as many as it likes; none: the server's
  // way.
  std::optional<int64_t> budget;
  std::string effort;  // "low", "high", …: the server may have a budget for it
};

// Reads them all, `template_kwargs` included: an object, or null without any. Errors name the
// field.
Status read_thinking(Fields& fields, Json& template_kwargs, Thinking& into);

}  // namespace pewter::server
