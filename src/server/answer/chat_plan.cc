#include "server/answer/chat_plan.h"

#include "server/answer/answer_grammar.h"

namespace pewter::server {
namespace {

ChoiceTextOptions text_options(const ChatRequest& request, const ServedModel& model,
                               bool opens_reasoning) {
  const GenerationFields& fields = request.generation;
  return {.skip_special = fields.skip_special,
          .stops = fields.stops,
          .include_stop = fields.include_stop,
          .stop_in_reasoning = model.stop_in_reasoning,
          .min_tokens = fields.min_tokens,
          .repetition = fields.repetition,
          .parser = {.in_reasoning = opens_reasoning && model.parse_reasoning,
                     .tools = request.tools,
                     .tool_choice = request.tool_choice,
                     .parallel_calls = request.parallel_tool_calls}};
}

}  // namespace

Result<ChatPrompt> chat_prompt(const ChatRequest& request, const ServedModel& model) {
  TRY(model.check_name(request.generation.model));
  log_unread(request.unread);
  ChatInput without_tools;
  const bool excludes = model.exclude_unwanted_tools && request.tool_choice == ToolChoice::kNone;
  if (excludes) {
    without_tools = request.chat;
    without_tools.tools = Json();
  }
  TRY_ASSIGN(const RenderedPrompt rendered, model.render(excludes ? without_tools : request.chat));
  ChatPrompt prompt;
  TRY_ASSIGN(prompt.ids, model.tokenizer->encode_prompt(rendered.text, rendered.foreign));
  const size_t whole = prompt.ids.size();
  model.truncate(prompt.ids, request.generation);
  if (prompt.ids.empty()) return bad_request("messages: the prompt they make is empty");
  prompt.opens_reasoning = opens_reasoning(rendered.text, rendered.foreign);
  if (request.generation.return_prompt_text)
    prompt.text = prompt.ids.size() == whole
                      ? rendered.text
                      : model.tokenizer->decode(prompt.ids, /*skip_special=*/false);
  return prompt;
}

Result<GenerationPlan> plan_chat(const ChatRequest& request, ChatPrompt prompt,
                                 const Model& model) {
  const GenerationFields& fields = request.generation;
  GenerationPlan plan{.model = model,
                      .prompt_tokens = static_cast<int64_t>(prompt.ids.size()),
                      .stream = fields.stream,
                      .include_usage = fields.include_usage,
                      .continuous_usage = fields.continuous_usage};
  // Without max_tokens an answer may fill the context.
  TRY_ASSIGN(Request engine_request,
             model->make_request(std::move(prompt.ids), fields, model->engine->max_context()));
  if (prompt.opens_reasoning) {
    TRY_ASSIGN(engine_request.reasoning, model->reasoning_limit(request.thinking));
  }
  TRY_ASSIGN(engine_request.grammar, answer_grammar(request, *model, prompt.opens_reasoning));
  const ChoiceText text(*model->tokenizer, text_options(request, *model, prompt.opens_reasoning));
  for (int64_t i = 0; i < fields.n; ++i) {
    Choice& choice = plan.choices.emplace_back(i, 0, engine_request, text);
    if (fields.sampling.seed)
      choice.request.sampling.seed = *fields.sampling.seed + static_cast<uint64_t>(i);
    engine_request.prompt_logprobs = -1;  // the first choice tells it for all
  }
  return plan;
}

}  // namespace pewter::server
