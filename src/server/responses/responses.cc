// POST /v1/responses, OpenAI's newer API, without a memory.
#include "server/answer/chat_plan.h"
#include "server/responses/responses_format.h"
#include "server/responses/responses_request.h"

namespace pewter::server {

Result<Outcome> responses(const HttpRequest& http, const Model& model) {
  TRY_ASSIGN(const ResponsesRequest request, parse_responses_request(http.body, model->schema));
  TRY_ASSIGN(ChatPrompt prompt, chat_prompt(request.chat, *model));
  TRY_ASSIGN(GenerationPlan plan, plan_chat(request.chat, std::move(prompt), model));
  plan.include_usage = false;  // it stands in the last event
  plan.continuous_usage = true;
  plan.format = make_responses_format(model, request.echo);
  return Outcome(std::move(plan));
}

}  // namespace pewter::server
