// POST /v1/chat/completions
#include "server/openai/chat_format.h"
#include "server/openai/endpoints.h"

namespace pewter::server {

Result<Outcome> chat_completions(const HttpRequest& http, const Model& model) {
  TRY_ASSIGN(ChatRequest chat, parse_chat_request(http.body, model->schema));
  const GenerationFields& fields = chat.generation;
  TRY(model->check_name(fields.model));
  log_unread(chat.unread);
  TRY_ASSIGN(const RenderedPrompt prompt, model->render(chat.chat));
  TRY_ASSIGN(std::vector<int32_t> ids,
             model->tokenizer->encode_prompt(prompt.text, prompt.foreign));
  if (ids.empty()) return bad_request("messages: the prompt they make is empty");

  ChatFormatOptions format{.model = model,
                           .include_reasoning = chat.include_reasoning,
                           .logprobs = fields.logprobs >= 0,
                           .return_token_ids = fields.return_token_ids};
  if (fields.return_token_ids) format.prompt_ids = ids;
  GenerationPlan plan{.model = model,
                      .prompt_tokens = static_cast<int64_t>(ids.size()),
                      .stream = fields.stream,
                      .include_usage = fields.include_usage,
                      .continuous_usage = fields.continuous_usage};
  // Without max_tokens an answer may fill the context.
  TRY_ASSIGN(const Request request,
             model->make_request(std::move(ids), fields, model->engine->max_context()));
  const ChoiceText text(*model->tokenizer,
                        {.skip_special = fields.skip_special,
                         .stops = fields.stops,
                         .include_stop = fields.include_stop,
                         .stop_in_reasoning = model->stop_in_reasoning,
                         .min_tokens = fields.min_tokens,
                         .parser = {.in_reasoning = model->parse_reasoning &&
                                                    opens_reasoning(prompt.text, prompt.foreign),
                                    .tools = chat.tools,
                                    .tool_choice = chat.tool_choice,
                                    .parallel_calls = chat.parallel_tool_calls}});
  for (int64_t i = 0; i < fields.n; ++i) {
    Choice& choice = plan.choices.emplace_back(i, 0, request, text);
    if (fields.sampling.seed)
      choice.request.sampling.seed = *fields.sampling.seed + static_cast<uint64_t>(i);
  }
  plan.format = make_chat_format(std::move(format));
  return Outcome(std::move(plan));
}

}  // namespace pewter::server
