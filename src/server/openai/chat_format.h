// How /v1/chat/completions spells its answers: chat.completion, and chat.completion.chunk events.
#pragma once

#include "server/answer/generation.h"

namespace pewter::server {

struct ChatFormatOptions {
  std::shared_ptr<const ServedModel> model;
  bool include_reasoning = true;
  bool logprobs = false;
  bool return_token_ids = false;
  std::vector<int32_t> prompt_ids = {};  // told with return_token_ids, and where it is scored
  std::optional<std::string> prompt_text = {};
  std::string echo = {};  // stands before every choice's content
};

std::unique_ptr<ResponseFormat> make_chat_format(ChatFormatOptions options);

}  // namespace pewter::server
