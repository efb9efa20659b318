// What a caller asks of the engine, in token ids and native types: no JSON, no text. The engine can
// be tested without a tokenizer or a socket.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "base/result.h"
#include "engine/draft_figures.h"

namespace pewter::grammar {
class TokenGrammar;
}

namespace pewter {

// Neutral values change nothing. Ranges are those of the OpenAI API and its common extensions.
struct SamplingParams {
  float temperature = 1;         // ≥ 0; 0 is greedy, and top-k, top-p, min-p then have no effect
  int32_t top_k = 0;             // 0 or -1: off
  float top_p = 1;               // (0, 1]
  float min_p = 0;               // [0, 1]
  float repetition_penalty = 1;  // > 0, over prompt and output
  float presence_penalty = 0;    // [-2, 2], over the output
  float frequency_penalty = 0;   // [-2, 2], over the output
  std::optional<uint64_t> seed;  // none: drawn by the engine, reported back
  std::vector<std::pair<int32_t, float>> logit_bias;  // token id -> [-100, 100]

  // Error: kInvalidArgument naming the field, its value and its range.
  Status validate(int64_t vocab_size) const;
};

// Reasoning that may not go on for ever: after so many tokens the answer goes on as if the model
// had closed it itself.
struct ReasoningLimit {
  int64_t budget = -1;           // tokens generated before that; -1: no limit
  int32_t end_token = -1;        // ends the reasoning when it is generated before
  std::vector<int32_t> closing;  // what is generated then, ids one after another

  bool is_set() const { return budget >= 0; }
};

struct Request {
  std::vector<int32_t> prompt;  // at least one id
  SamplingParams sampling;
  int64_t max_tokens = 0;         // > 0; cut to what the context leaves
  int64_t min_tokens = 0;         // stop ids are not chosen before this many
  std::vector<int32_t> stop_ids;  // end the sequence when chosen
  bool ignore_stop = false;       // stop ids are never chosen
  int32_t top_logprobs = 0;       // likeliest tokens reported with each, at most kTopLogprobs
  // Likeliest tokens reported with each token of the prompt; -1: the prompt is not scored.
  int32_t prompt_logprobs = -1;
  std::vector<int32_t> allowed_ids;  // only these are chosen, stop ids included; empty: any
  // Lists of ids, none empty, whose last is not chosen right behind the others.
  std::vector<std::vector<int32_t>> banned;
  ReasoningLimit reasoning;  // of a prompt that has opened a block of reasoning
  // What is generated is a text of this grammar, whose vocabulary is the model's: stop ids that are
  // control tokens are chosen only where the text may end, and where it must end the sequence does.
  std::shared_ptr<const grammar::TokenGrammar> grammar = nullptr;
};

// A token that could have been chosen, and its log-probability.
using TopLogprob = std::pair<int32_t, float>;

// How likely the model finds a prompt, token by token.
struct PromptScores {
  struct Token {
    float logprob = 0;  // behind the tokens before it
    int32_t rank = 0;   // 1: the likeliest; 0: behind the kTopLogprobs likeliest
  };
  std::vector<Token> tokens;    // of the prompt, from its second on
  std::vector<TopLogprob> top;  // request.prompt_logprobs for each, by falling probability
};

enum class FinishReason : uint8_t { kStop, kLength, kCancelled, kError };

struct Completion {
  FinishReason reason = FinishReason::kStop;
  Error error;  // with kError
  uint64_t seed = 0;
  int64_t prompt_tokens = 0, completion_tokens = 0;  // the stop token counts
  // Waiting to start; from then until the first token; from there to the end.
  double queued_seconds = 0, prefill_seconds = 0, decode_seconds = 0;
  DraftFigures drafts;
};

}  // namespace pewter
