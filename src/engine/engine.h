// Engine: runs requests on a model and streams their tokens. It owns the runner and, for now, works
// one request after another on the caller's thread; scheduling many at once belongs behind this
// interface.
#pragma once

#include <functional>

#include "engine/model_runner.h"
#include "engine/sampler.h"

namespace pewter {

struct EngineOptions {
  RunnerOptions runner;
  int64_t max_context = 0;  // prompt + output of one sequence; 0: what model and cache allow
  // Bits of ids that may be sampled, ⌈vocabulary / 32⌉ words; empty: all below vocab_limit.
  std::vector<uint32_t> token_mask;
  int64_t vocab_limit = 0;  // ids from here on are never sampled; 0: the model's vocabulary
};

class Engine {
 public:
  // What the caller hears while a request runs; returning false cancels it within a step.
  struct Hooks {
    std::function<bool(const TokenEvent&)> on_token;  // each token as it is chosen
    std::function<bool(int64_t done, int64_t total)> on_prefill =
        {};  // after each prefill chunk; may be empty
  };

  // model, device and ops outlive the engine. Errors: kInvalidArgument (options), and the runner's.
  static Result<std::unique_ptr<Engine>> make(const Qwen35Model& model, Device& device, Ops& ops,
                                              const EngineOptions& options);

  // Runs a request to its end. Errors: kInvalidArgument (parameters, empty or too long prompt, ids
  // outside the vocabulary); a fault while generating ends the request with reason kError instead.
  Result<Completion> generate(const Request& request, const Hooks& hooks);

  int64_t max_context() const { return max_context_; }
  ModelRunner& runner() { return *runner_; }

 private:
  Engine(const Qwen35Model& model, Ops& ops) : model_(model), ops_(ops) {}
  Status check(const Request& request) const;
  Completion run(const Request& request, int64_t max_tokens, SequenceState& sequence,
                 const Hooks& hooks);
  // Samples row 0 of the runner's logits.
  int32_t sample(const Sampler& sampler);

  const Qwen35Model& model_;
  Ops& ops_;
  EngineOptions options_;
  std::unique_ptr<ModelRunner> runner_;
  int64_t max_context_ = 0;
  // Where the sample op writes: token, log-probability, and the most probable tokens.
  int32_t token_ = 0;
  float logprob_ = 0;
  std::array<int32_t, kTopLogprobs> top_tokens_{};
  std::array<float, kTopLogprobs> top_logprobs_{};
};

}  // namespace pewter
