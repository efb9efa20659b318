// Pieces of JSON that several responses hold, appended by hand: an event is written for every
// token, and a document model would cost ten times as much.
#pragma once

#include <string>
#include <string_view>

#include "base/json.h"
#include "base/str_cat.h"
#include "text/tokenizer.h"

namespace pewter {
struct PromptScores;
}

namespace pewter::server {

struct Choice;
struct ServedModel;
struct Usage;

// Seconds and tokens of a response, as llama.cpp tells them.
struct Timings {
  int64_t prompt_tokens = 0, predicted_tokens = 0;
  double prompt_seconds = 0, predicted_seconds = 0;
  int64_t draft_tokens = 0, accepted_tokens = 0;
};

void append_usage(std::string& out, const Usage& usage);  // an object
std::string timings_member(const Timings& timings);       // ,"timings":{…}
// A log-probability; JSON knows no infinity, so -inf is -9999.
void append_logprob(std::string& out, float logprob);
// A token's bytes as text: what is no whole character is U+FFFD.
std::string token_text(const Tokenizer& tokenizer, int32_t id);
// A prompt's tokens, the first null, each with those that were likely in its place:
// [null,{"9":{"logprob":-0.1,"rank":1,"decoded_token":"a"},…},…]. A rank beyond the 20 likeliest is
// null.
void append_prompt_logprobs(std::string& out, const Tokenizer& tokenizer,
                            const std::vector<int32_t>& prompt, const PromptScores& scores);
void append_ids(std::string& out, const std::vector<int32_t>& ids);  // [1,2]

// "chatcmpl-" and 24 random hex digits.
std::string response_id(std::string_view prefix);

// The beginning of a response or event, up to the value of "choices".
std::string response_head(std::string_view id, std::string_view object, const ServedModel& model);
// The end of a choice's object, from finish_reason on.
void append_choice_end(std::string& out, const Choice& choice, bool with_token_ids);
// Ends an event after its choices, and adds it to `out`. `tail`: as ResponseFormat::end has it.
void close_event(std::string& event, const Usage* usage, std::string_view tail, std::string& out);

}  // namespace pewter::server
