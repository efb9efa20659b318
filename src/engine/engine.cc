#include "engine/engine.h"

#include <algorithm>
#include <random>

#include "base/clock.h"

namespace pewter {

Result<std::unique_ptr<Engine>> Engine::make(const Qwen35Model& model, Device& device, Ops& ops,
                                             const EngineOptions& options) {
  const int64_t vocab = model.config.vocab_size, words = (vocab + 31) / 32;
  if (options.vocab_limit < 0 || options.vocab_limit > vocab)
    return Error{ErrorCode::kInvalidArgument, str_cat("vocab_limit: ", options.vocab_limit,
                                                      " is outside the vocabulary of ", vocab)};
  const auto mask_words = static_cast<int64_t>(options.token_mask.size());
  if (mask_words != 0 && mask_words != words)
    return Error{ErrorCode::kInvalidArgument,
                 str_cat("token_mask: ", mask_words, " words, want ", words)};
  std::unique_ptr<Engine> engine(new Engine(model, ops));
  engine->options_ = options;
  if (options.vocab_limit == 0) engine->options_.vocab_limit = model.config.vocab_size;
  TRY_ASSIGN(engine->runner_, ModelRunner::make(model, device, ops, options.runner));
  const int64_t fits = std::min(options.runner.cache_tokens, model.config.max_positions);
  engine->max_context_ = options.max_context > 0 ? std::min(options.max_context, fits) : fits;
  return engine;
}

Status Engine::check(const Request& request) const {
  TRY(request.sampling.validate(model_.config.vocab_size));
  if (request.prompt.empty()) return Error{ErrorCode::kInvalidArgument, "prompt: empty"};
  if (request.max_tokens <= 0)
    return Error{ErrorCode::kInvalidArgument,
                 str_cat("max_tokens: ", request.max_tokens, " is not positive")};
  if (request.min_tokens < 0 || request.min_tokens > request.max_tokens)
    return Error{ErrorCode::kInvalidArgument,
                 str_cat("min_tokens: ", request.min_tokens, " is outside [0, ", request.max_tokens,
                         "], up to max_tokens")};
  for (const int32_t token : request.prompt)
    if (token < 0 || token >= model_.config.vocab_size)
      return Error{ErrorCode::kInvalidArgument,
                   str_cat("prompt: token id ", token, " is not in the vocabulary of ",
                           model_.config.vocab_size)};
  const auto length = static_cast<int64_t>(request.prompt.size());
  if (length >= max_context_)
    return Error{ErrorCode::kInvalidArgument,
                 str_cat("This model's maximum context length is ", max_context_,
                         " tokens. However, you requested a prompt of ", length, " tokens.")};
  return {};
}

int32_t Engine::sample(const Sampler& sampler) {
  const SamplingRow row = sampler.row();
  const std::span<const LogitEdit> edits = sampler.edits();
  const std::array<int32_t, 2> edit_begin = {0, static_cast<int32_t>(edits.size())};
  ops_.sample({.logits = runner_->logits().first(1),
               .vocab_limit = options_.vocab_limit,
               .rows = &row,
               .edits = edits.data(),
               .edit_begin = edit_begin.data(),
               .masks = options_.token_mask.empty() ? nullptr : options_.token_mask.data(),
               .token = {&token_, DType::kI32, {1}},
               .logprob = {&logprob_, DType::kF32, {1}},
               .top_token = {top_tokens_.data(), DType::kI32, {1, kTopLogprobs}},
               .top_logprob = {top_logprobs_.data(), DType::kF32, {1, kTopLogprobs}}});
  return token_;
}

Result<Completion> Engine::generate(const Request& request, const Hooks& hooks) {
  CHECK(hooks.on_token, "nobody listens");
  TRY(check(request));
  const auto prompt_length = static_cast<int64_t>(request.prompt.size());
  const int64_t max_tokens = std::min(request.max_tokens, max_context_ - prompt_length);
  TRY_ASSIGN(SequenceState sequence, runner_->open(prompt_length + max_tokens));
  const Completion completion = run(request, max_tokens, sequence, hooks);
  runner_->close(sequence);
  return completion;
}

Completion Engine::run(const Request& request, int64_t max_tokens, SequenceState& sequence,
                       const Hooks& hooks) {
  std::random_device entropy;
  Sampler sampler(request, {.seed = (static_cast<uint64_t>(entropy()) << 32) ^ entropy(),
                            .max_tokens = max_tokens});
  const std::span<const int32_t> prompt(request.prompt);
  Completion completion{.reason = FinishReason::kLength,
                        .seed = sampler.seed(),
                        .prompt_tokens = static_cast<int64_t>(prompt.size())};

  // Chunk borders depend on the prompt alone: multiples of the chunk size.
  Stopwatch watch;
  const auto chunk = static_cast<size_t>(runner_->options().chunk_rows);
  for (size_t begin = 0; begin < prompt.size(); begin += chunk) {
    const size_t end = std::min(begin + chunk, prompt.size());
    runner_->prefill({.sequence = &sequence,
                      .tokens = prompt.subspan(begin, end - begin),
                      .logits = end == prompt.size() ? LogitsWanted::kLast : LogitsWanted::kNone});
    completion.prefill_seconds = watch.seconds();
    if (hooks.on_prefill &&
        !hooks.on_prefill(static_cast<int64_t>(end), completion.prompt_tokens)) {
      completion.reason = FinishReason::kCancelled;
      return completion;
    }
  }

  watch.restart();
  while (true) {
    const int32_t token = sample(sampler);
    if (token < 0) {
      completion.reason = FinishReason::kError;
      completion.error = {ErrorCode::kInternal,
                          "the model's logits are not finite, or every token is masked"};
      break;
    }
    sampler.push(token);
    completion.completion_tokens = sampler.generated();
    const bool is_stop = std::find(request.stop_ids.begin(), request.stop_ids.end(), token) !=
                         request.stop_ids.end();
    const bool wanted = hooks.on_token({.token = token,
                                        .is_stop = is_stop,
                                        .logprob = logprob_,
                                        .top_tokens = top_tokens_.data(),
                                        .top_logprobs = top_logprobs_.data()});
    if (is_stop)
      completion.reason = FinishReason::kStop;
    else if (!wanted)
      completion.reason = FinishReason::kCancelled;
    if (is_stop || !wanted || sampler.generated() == max_tokens) break;
    const SequenceRows rows{.sequence = &sequence, .tokens = std::span(&token, 1)};
    runner_->decode(std::span(&rows, 1));
    runner_->accept(sequence, 1);
  }
  completion.decode_seconds = watch.seconds();
  return completion;
}

}  // namespace pewter
