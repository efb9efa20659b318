// How /v1/completions spells its answers: text_completion objects, whole and as events, with
// log-probabilities in the old form (four lists side by side).
#pragma once

#include "server/answer/generation.h"

namespace pewter::server {

struct CompletionFormatOptions {
  std::shared_ptr<const ServedModel> model;
  bool echo = false;
  int64_t logprobs = -1;  // likeliest tokens listed; -1: none at all
  bool return_token_ids = false;
  bool return_prompt_text = false;
  bool prompt_logprobs = false;
  std::vector<std::string> prompt_texts = {};         // with echo and return_prompt_text
  std::vector<std::vector<int32_t>> prompt_ids = {};  // of every prompt
};

std::unique_ptr<ResponseFormat> make_completion_format(CompletionFormatOptions options);

}  // namespace pewter::server
