// POST /v1/completions: prompts as they are, without a template; added tokens are recognised.
#include "server/answer/answer_grammar.h"
#include "server/endpoints.h"
#include "server/openai/completion_format.h"
#include "server/openai/schema.h"

namespace pewter::server {
namespace {

// What OpenAI generates when a request does not say.
constexpr int64_t kDefaultMaxTokens = 16;

}  // namespace

Result<Outcome> completions(const HttpRequest& http, const Model& model) {
  TRY_ASSIGN(CompletionRequest completion, parse_completion_request(http.body, model->schema));
  const GenerationFields& fields = completion.generation;
  TRY(model->check_name(fields.model));
  log_unread(completion.unread);

  CompletionFormatOptions format{.model = model,
                                 .echo = completion.echo,
                                 .logprobs = fields.logprobs,
                                 .return_token_ids = fields.return_token_ids,
                                 .return_prompt_text = fields.return_prompt_text,
                                 .prompt_logprobs = fields.prompt_logprobs >= 0};
  GenerationPlan plan{.model = model,
                      .stream = fields.stream,
                      .include_usage = fields.include_usage,
                      .continuous_usage = fields.continuous_usage};
  ChoiceTextOptions options;
  options.skip_special = fields.skip_special;
  options.stops = fields.stops;
  options.include_stop = fields.include_stop;
  options.min_tokens = fields.min_tokens;
  options.repetition = fields.repetition;
  const ChoiceText text(*model->tokenizer, options);
  TRY_ASSIGN(const auto answer, answer_grammar(fields.format, *model));
  for (size_t p = 0; p < completion.prompts.size(); ++p) {
    const auto* given = std::get_if<std::string>(&completion.prompts[p]);
    std::vector<int32_t> ids;
    if (given != nullptr) {
      TRY_ASSIGN(ids, model->tokenizer->encode(*given));
    } else {
      ids = std::get<std::vector<int32_t>>(std::move(completion.prompts[p]));
    }
    const size_t whole = ids.size();
    model->truncate(ids, fields);
    plan.prompt_tokens += static_cast<int64_t>(ids.size());
    if (completion.echo || fields.return_prompt_text)
      format.prompt_texts.push_back(given != nullptr && ids.size() == whole
                                        ? *given
                                        : model->tokenizer->decode(ids, /*skip_special=*/false));
    format.prompt_ids.push_back(ids);
    TRY_ASSIGN(Request request, model->make_request(std::move(ids), fields, kDefaultMaxTokens));
    request.grammar = answer;
    // With echo, log-probabilities are those of the prompt too.
    if (completion.echo && fields.logprobs >= 0)
      request.prompt_logprobs =
          std::max(request.prompt_logprobs, static_cast<int32_t>(fields.logprobs));
    for (int64_t i = 0; i < fields.n; ++i) {
      const auto index = static_cast<int64_t>(plan.choices.size());
      Choice& choice = plan.choices.emplace_back(index, p, request, text);
      if (fields.sampling.seed)
        choice.request.sampling.seed = *fields.sampling.seed + static_cast<uint64_t>(i);
    }
  }
  plan.format = make_completion_format(std::move(format));
  return Outcome(std::move(plan));
}

}  // namespace pewter::server
