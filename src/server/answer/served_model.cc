#include "server/answer/served_model.h"

#include <algorithm>

#include "base/blanks.h"
#include "text/output_parser.h"

namespace pewter::server {
namespace {

// Cuts a prompt behind the last message's text, so that the model goes on with it.
Status cut_after_last_message(const ChatInput& chat, RenderedPrompt& prompt) {
  const std::string_view text =
      trimmed(chat.messages.as_array().back().find("content")->as_string());
  const size_t at = prompt.text.rfind(text);
  if (at == std::string::npos)
    return bad_request(
        "continue_final_message: the chat template changes the text of the last message");
  const size_t end = at + text.size();
  prompt.text.resize(end);
  std::erase_if(prompt.foreign, [end](const ByteRange& range) { return range.begin >= end; });
  if (!prompt.foreign.empty()) prompt.foreign.back().end = std::min(prompt.foreign.back().end, end);
  return {};
}

}  // namespace

Status ServedModel::check_name(const std::optional<std::string>& name) const {
  if (!name || std::ranges::find(names, *name) != names.end()) return {};
  return Error{ErrorCode::kNotFound,
               str_cat("model: there is no model ", safe_quote(*name), " here; ",
                       safe_quote(this->name()), " is what is served")};
}

Result<RenderedPrompt> ServedModel::render(const ChatInput& chat) const {
  const ChatTemplate* used = chat.own_template ? chat.own_template.get() : chat_template;
  if (used == nullptr)
    return Error{ErrorCode::kUnsupported,
                 "messages: this model has no chat template; use /v1/completions"};
  ChatTemplateInput input{.messages = chat.messages,
                          .tools = chat.tools,
                          .add_generation_prompt = chat.add_generation_prompt,
                          .kwargs = default_template_kwargs};
  if (chat.template_kwargs.is_object())
    for (const auto& [key, value] : chat.template_kwargs.as_object()) input.kwargs.set(key, value);
  // A client's own program gets a fraction of a second.
  if (chat.own_template)
    input.limits = {.max_steps = 2'000'000,
                    .max_output_bytes = int64_t{16} << 20,
                    .max_memory_bytes = int64_t{256} << 20};
  const TokenizerConfig& config = tokenizer->config();
  if (config.bos_token) input.special_tokens.set("bos_token", *config.bos_token);
  if (config.eos_token) input.special_tokens.set("eos_token", *config.eos_token);
  if (config.pad_token) input.special_tokens.set("pad_token", *config.pad_token);
  Result<RenderedPrompt> prompt = used->render(input);
  // Whatever a template does not like is about the conversation it was given.
  if (!prompt) return bad_request(prompt.error().message);
  if (chat.continue_final_message) TRY(cut_after_last_message(chat, *prompt));
  return prompt;
}

void ServedModel::truncate(std::vector<int32_t>& prompt, const GenerationFields& fields) const {
  if (!fields.truncate_prompt) return;
  // Agents ask for more than the context has: half of it is the prompt's all the same.
  const int64_t context = engine->max_context();
  const int64_t room = std::max(context - fields.max_tokens.value_or(1), context / 2);
  const int64_t most = *fields.truncate_prompt > 0 ? *fields.truncate_prompt : room;
  const int64_t excess = std::ssize(prompt) - most;
  if (excess > 0) prompt.erase(prompt.begin(), prompt.begin() + excess);
}

// A word that is not to be said, as the ids it may be written with: as it is, and behind a blank.
Status ServedModel::ban(const std::vector<std::string>& words, Request& request) const {
  for (const std::string& word : words)
    for (const char* before : {"", " "}) {
      TRY_ASSIGN(std::vector<int32_t> ids, tokenizer->encode(before + word));
      if (!ids.empty() && std::ranges::find(request.banned, ids) == request.banned.end())
        request.banned.push_back(std::move(ids));
    }
  return {};
}

Result<Request> ServedModel::make_request(std::vector<int32_t> prompt,
                                          const GenerationFields& fields,
                                          int64_t default_max_tokens) const {
  const int64_t context = engine->max_context();
  const auto length = static_cast<int64_t>(prompt.size());
  const auto too_long = [&](const std::string& requested) {
    return bad_request(str_cat("This model's maximum context length is ", context,
                               " tokens. However, you requested ", requested,
                               ". Please shorten the prompt."));
  };
  if (length >= context) return too_long(str_cat("a prompt of ", length, " tokens"));
  const int64_t wanted = fields.max_tokens.value_or(default_max_tokens);
  if (strict_max_tokens && fields.max_tokens && length + wanted > context)
    return too_long(str_cat(length + wanted, " tokens (", length, " in the prompt and ", wanted,
                            " for the answer)"));
  Request request{.prompt = std::move(prompt),
                  .sampling = fields.sampling,
                  .max_tokens = std::min(wanted, context - length),
                  .stop_ids = stop_ids,
                  .ignore_stop = fields.ignore_eos,
                  .top_logprobs = static_cast<int32_t>(std::max<int64_t>(fields.logprobs, 0)),
                  .prompt_logprobs = static_cast<int32_t>(fields.prompt_logprobs),
                  .allowed_ids = fields.allowed_ids};
  TRY(ban(fields.bad_words, request));
  request.min_tokens = std::min(fields.min_tokens, request.max_tokens);
  request.stop_ids.insert(request.stop_ids.end(), fields.stop_ids.begin(), fields.stop_ids.end());
  TRY(engine->check(request));
  return request;
}

Result<ReasoningLimit> ServedModel::reasoning_limit(const Thinking& thinking) const {
  ReasoningLimit limit{.budget = reasoning.budget};
  const auto effort = std::ranges::find(reasoning.effort_budgets, thinking.effort,
                                        &std::pair<std::string, int64_t>::first);
  if (effort != reasoning.effort_budgets.end()) limit.budget = effort->second;
  if (thinking.budget) limit.budget = *thinking.budget;
  if (!limit.is_set()) return limit;
  const std::optional<int32_t> end = tokenizer->id_of("</think>");
  if (!end)
    return Error{ErrorCode::kUnsupported,
                 "thinking_token_budget: this model's vocabulary has no </think>"};
  limit.end_token = *end;
  // At the very start the prompt's own newline stands before it.
  std::string text = reasoning.message;
  if (limit.budget > 0 && !text.empty()) text.insert(0, "\n\n");
  text += "\n</think>\n\n";
  TRY_ASSIGN(limit.closing, tokenizer->encode(text));
  return limit;
}

}  // namespace pewter::server
