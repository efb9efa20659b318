// POST /v1/chat/completions
#include "server/answer/chat_plan.h"
#include "server/openai/chat_format.h"
#include "server/openai/schema.h"

namespace pewter::server {

Result<Outcome> chat_completions(const HttpRequest& http, const Model& model) {
  TRY_ASSIGN(const ChatRequest chat, parse_chat_request(http.body, model->schema));
  TRY_ASSIGN(ChatPrompt prompt, chat_prompt(chat, *model));
  ChatFormatOptions format{.model = model,
                           .include_reasoning = chat.include_reasoning,
                           .logprobs = chat.generation.logprobs >= 0,
                           .return_token_ids = chat.generation.return_token_ids,
                           .echo = chat.echo};
  if (chat.generation.return_token_ids || chat.generation.prompt_logprobs >= 0)
    format.prompt_ids = prompt.ids;
  if (chat.generation.return_prompt_text) format.prompt_text = prompt.text;
  TRY_ASSIGN(GenerationPlan plan, plan_chat(chat, std::move(prompt), model));
  plan.format = make_chat_format(std::move(format));
  return Outcome(std::move(plan));
}

}  // namespace pewter::server
