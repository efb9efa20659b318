// One answer of a loaded model: a rendered prompt in, text out as it is generated, reasoning and
// answer apart.
#pragma once

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "cli/loaded_model.h"
#include "text/output_parser.h"

namespace pewter {

struct AnswerOptions {
  SamplingParams sampling;
  int64_t max_tokens = 0;   // 0: what the context leaves
  bool ignore_eos = false;  // stop ids are never chosen
  bool raw = false;         // also keep the text as it came: special tokens and tags included
  int top_logprobs = -1;    // -1: no log-probabilities; otherwise also that many likeliest tokens
};

struct TokenRecord {
  int32_t token = 0;
  float logprob = 0;
  std::vector<TopLogprob> top;  // by falling probability
};

struct Answer {
  std::string reasoning, text;
  std::string raw;  // with options.raw
  Completion completion;
  int64_t reasoning_tokens = 0;     // up to and including </think>
  std::vector<TokenRecord> tokens;  // with top_logprobs >= 0
};

struct AnswerHooks {
  // Whole characters, never nothing. With options.raw it is the raw text, as answer.
  std::function<void(const OutputDelta&)> on_text;
  std::function<void(int64_t done, int64_t total)> on_prefill;
  std::function<bool()> wanted;  // false stops the answer within a step
};

// Runs the model on the prompt to the answer's end. Errors: kInvalidArgument (parameters, a prompt
// too long for the context), and a fault while generating.
Result<Answer> generate_answer(LoadedModel& model, const RenderedPrompt& prompt,
                               const AnswerOptions& options, const AnswerHooks& hooks);

// "stop", "length", "cancelled", "error".
std::string_view finish_reason_name(FinishReason reason);
// Tokens per second of the decode phase; the first token belongs to prefill. 0 when unknown.
double decode_rate(const Completion& completion);
double prefill_rate(const Completion& completion);

}  // namespace pewter
