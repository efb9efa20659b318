// POST /v1/messages and /v1/messages/count_tokens, Anthropic's API.
#include "server/answer/chat_plan.h"
#include "server/anthropic/messages_format.h"
#include "server/anthropic/messages_request.h"

namespace pewter::server {
namespace {

Result<ChatRequest> parse(const HttpRequest& http, const ServedModel& model) {
  MessagesOptions options{.schema = model.schema};
  // Whoever serves the model may have said it for all.
  if (model.default_template_kwargs.find("enable_thinking") != nullptr) options.thinks.reset();
  return parse_messages_request(http.body, options);
}

}  // namespace

Result<Outcome> messages(const HttpRequest& http, const Model& model) {
  TRY_ASSIGN(const ChatRequest chat, parse(http, *model));
  TRY_ASSIGN(ChatPrompt prompt, chat_prompt(chat, *model));
  TRY_ASSIGN(GenerationPlan plan, plan_chat(chat, std::move(prompt), model));
  plan.include_usage = false;  // it stands in the first event and the last
  plan.continuous_usage = true;
  plan.format = make_messages_format(model);
  return Outcome(std::move(plan));
}

Result<Outcome> count_message_tokens(const HttpRequest& http, const Model& model) {
  TRY_ASSIGN(const ChatRequest chat, parse(http, *model));
  TRY_ASSIGN(const ChatPrompt prompt, chat_prompt(chat, *model));
  return Outcome(HttpResponse{.body = str_cat("{\"input_tokens\":", prompt.ids.size(), "}")});
}

}  // namespace pewter::server
