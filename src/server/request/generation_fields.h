// What requests for chats and for completions have in common: how tokens are chosen, when to stop,
// what to send back. JSON ends here.
#pragma once

#include "engine/request.h"
#include "server/request/answer_format.h"

namespace pewter::server {

inline constexpr int64_t kMostChoices = 128;
inline constexpr size_t kMostStops = 64;

// An answer ends when its last tokens are `count` times the same ones, of so many tokens each.
struct RepetitionLimit {
  int64_t shortest = 1, longest = 0, count = 2;
};

struct GenerationFields {
  std::optional<std::string> model;
  bool stream = false, include_usage = false, continuous_usage = false;
  int64_t n = 1;
  SamplingParams sampling;
  std::optional<int64_t> max_tokens;
  int64_t min_tokens = 0;
  bool ignore_eos = false;
  std::vector<int32_t> stop_ids;   // beside the model's own
  std::vector<std::string> stops;  // none is empty
  bool include_stop = false;       // a stop string is part of the text
  bool skip_special = true;
  bool return_token_ids = false, return_prompt_text = false;
  std::vector<std::string> bad_words;  // none is empty
  std::vector<int32_t> allowed_ids;    // empty: any
  // Of a longer prompt this many last tokens count; -1: as many as leave room for the answer.
  std::optional<int64_t> truncate_prompt;
  int64_t prompt_logprobs = -1;  // likeliest tokens reported with each of the prompt's; -1: none
  std::optional<RepetitionLimit> repetition;
  std::optional<AnswerFormat> format;  // none: any text
  int64_t logprobs = -1;  // likeliest tokens reported with each; -1: no log-probabilities
};

// A model's defaults, where the fields name others: temperature, top_p, … Errors name the field.
Status read_sampling_defaults(Fields& fields, SamplingParams& sampling);
// What every API's requests may say. What the request leaves open is as in `defaults`. Errors name
// the field.
Status read_generation(Fields& fields, const SamplingParams& defaults, GenerationFields& into);
// What only OpenAI's chats and completions have a place in their answers for; logprobs, which the
// two spell differently, apart.
Status read_reports(Fields& fields, GenerationFields& into);
// For the other APIs: the same fields are refused.
Status refuse_reports(Fields& fields);

}  // namespace pewter::server
