#include "cli/answer.h"

#include <algorithm>
#include <iterator>

#include "text/detokenizer.h"

namespace pewter {
namespace {

// Tokens of one answer on their way to text.
class AnswerBuilder {
 public:
  AnswerBuilder(const Tokenizer& tokenizer, bool in_reasoning, const AnswerOptions& options,
                const AnswerHooks& hooks, Answer& answer)
      : detokenizer_(tokenizer, /*skip_special=*/true),
        raw_detokenizer_(tokenizer, /*skip_special=*/false),
        parser_(in_reasoning),
        options_(options),
        hooks_(hooks),
        answer_(answer) {}

  void push(const TokenEvent& event) {
    if (options_.top_logprobs >= 0) record(event);
    if (options_.raw) emit_raw(raw_detokenizer_.push(event.token));
    if (parser_.in_reasoning()) ++answer_.reasoning_tokens;
    if (!event.is_stop) emit(parser_.push(detokenizer_.push(event.token)));  // a stop is no text
  }

  void finish() {
    if (options_.raw) emit_raw(raw_detokenizer_.flush());
    emit(parser_.push(detokenizer_.flush()));
    emit(parser_.finish());
  }

 private:
  void record(const TokenEvent& event) {
    TokenRecord record{.token = event.token, .logprob = event.logprob, .top = {}};
    std::ranges::copy_if(event.top, std::back_inserter(record.top),
                         [](const TopLogprob& top) { return top.first >= 0; });
    answer_.tokens.push_back(std::move(record));
  }

  void emit(const OutputDelta& delta) {
    if (delta.reasoning.empty() && delta.answer.empty()) return;
    answer_.reasoning += delta.reasoning;
    answer_.text += delta.answer;
    if (hooks_.on_text && !options_.raw) hooks_.on_text(delta);
  }

  void emit_raw(const std::string& text) {
    if (text.empty()) return;
    answer_.raw += text;
    if (hooks_.on_text) hooks_.on_text({.reasoning = {}, .answer = text});
  }

  IncrementalDetokenizer detokenizer_, raw_detokenizer_;
  OutputParser parser_;
  const AnswerOptions& options_;
  const AnswerHooks& hooks_;
  Answer& answer_;
};

double rate(int64_t tokens, double seconds) {
  return tokens > 0 && seconds > 0 ? static_cast<double>(tokens) / seconds : 0;
}

}  // namespace

Result<Answer> generate_answer(LoadedModel& model, const RenderedPrompt& prompt,
                               const AnswerOptions& options, const AnswerHooks& hooks) {
  Request request{.sampling = options.sampling,
                  .max_tokens = options.max_tokens,
                  .stop_ids = model.stop_ids,
                  .ignore_stop = options.ignore_eos,
                  .top_logprobs = std::max(options.top_logprobs, 0)};
  TRY_ASSIGN(request.prompt, model.tokenizer.encode_prompt(prompt.text, prompt.foreign));
  if (request.max_tokens == 0) request.max_tokens = model.engine->max_context();

  Answer answer;
  AnswerBuilder builder(model.tokenizer, opens_reasoning(prompt.text, prompt.foreign), options,
                        hooks, answer);
  const auto wanted = [&hooks] { return !hooks.wanted || hooks.wanted(); };
  const Engine::Hooks engine_hooks{.on_token =
                                       [&](const TokenEvent& event) {
                                         builder.push(event);
                                         return wanted();
                                       },
                                   .on_prefill =
                                       [&](int64_t done, int64_t total) {
                                         if (hooks.on_prefill) hooks.on_prefill(done, total);
                                         return wanted();
                                       }};
  TRY_ASSIGN(answer.completion, model.engine->generate(request, engine_hooks));
  builder.finish();
  if (answer.completion.reason == FinishReason::kError) return answer.completion.error;
  return answer;
}

std::string_view finish_reason_name(FinishReason reason) {
  switch (reason) {
    case FinishReason::kStop:
      return "stop";
    case FinishReason::kLength:
      return "length";
    case FinishReason::kCancelled:
      return "cancelled";
    case FinishReason::kError:
      return "error";
  }
  return "error";
}

double decode_rate(const Completion& completion) {
  return rate(completion.completion_tokens - 1, completion.decode_seconds);
}

double prefill_rate(const Completion& completion) {
  return rate(completion.prompt_tokens, completion.prefill_seconds);
}

}  // namespace pewter
