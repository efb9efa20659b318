// The bodies of OpenAI's endpoints as plain structs. Each parser names the first bad field.
#pragma once

#include <variant>

#include "server/request/chat_request.h"

namespace pewter::server {

using PromptText = std::variant<std::string, std::vector<int32_t>>;

struct CompletionRequest {
  GenerationFields generation;
  std::vector<PromptText> prompts;  // at least one
  bool echo = false;
  std::vector<std::string> unread;
};

struct TokenizeRequest {
  std::optional<std::string> model;
  std::string text;               // without chat
  std::optional<ChatInput> chat;  // of a request with messages
  bool with_pieces = false;       // "token_strs", "pieces"
};

struct DetokenizeRequest {
  std::optional<std::string> model;
  std::vector<int32_t> tokens;
};

Result<ChatRequest> parse_chat_request(std::string_view body, const SchemaOptions& options);
Result<CompletionRequest> parse_completion_request(std::string_view body,
                                                   const SchemaOptions& options);
Result<TokenizeRequest> parse_tokenize_request(std::string_view body, const SchemaOptions& options);
Result<DetokenizeRequest> parse_detokenize_request(std::string_view body);

}  // namespace pewter::server
