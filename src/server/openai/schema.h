// The bodies of the endpoints as plain structs. Each parser names the first bad field.
#pragma once

#include <variant>

#include "server/openai/generation_fields.h"
#include "server/openai/messages.h"
#include "server/openai/thinking_fields.h"
#include "text/output_parser.h"

namespace pewter::server {

struct SchemaOptions {
  SamplingParams defaults;  // where a request is silent
  MessageOptions messages;
  // Told which fields of a body a parser reads; null: nobody asks.
  std::vector<std::string>* read_names = nullptr;

  void tell(const Fields& fields) const {
    if (read_names != nullptr) *read_names = fields.read_names();
  }
};

// What a chat template is asked to render.
struct ChatInput {
  Json messages;         // normalised
  Json tools;            // a list, or null
  Json template_kwargs;  // an object, or null
  bool add_generation_prompt = true;
  bool continue_final_message = false;
};

// A request for an answer to a conversation, whichever API it came by.
struct ChatRequest {
  GenerationFields generation;
  ChatInput chat;
  std::shared_ptr<const ToolSchemas> tools;  // null: none, all that is generated is text
  ToolChoice tool_choice = ToolChoice::kAuto;
  std::string tool_name;            // of kNamed
  bool parallel_tool_calls = true;  // false: an answer ends with its first call
  Thinking thinking;
  bool include_reasoning = true;
  std::vector<std::string> unread;  // fields that nobody understood
};

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

// How the request's tools may be called: where every API's tool_choice ends. `name`: the function
// of kNamed. `path`: the field that says so, for errors; empty when none does.
Status choose_tools(ToolChoice choice, std::string_view name, std::string_view path,
                    ChatRequest& request);

Result<ChatRequest> parse_chat_request(std::string_view body, const SchemaOptions& options);
Result<CompletionRequest> parse_completion_request(std::string_view body,
                                                   const SchemaOptions& options);
Result<TokenizeRequest> parse_tokenize_request(std::string_view body, const SchemaOptions& options);
Result<DetokenizeRequest> parse_detokenize_request(std::string_view body);

}  // namespace pewter::server
