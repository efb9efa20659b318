// The body of POST /v1/messages as a ChatRequest: Anthropic's blocks become the messages that chat
// templates expect.
//
//   system           a text, or text blocks, which a blank line parts; billing lines are dropped
//   text             text of its message, in the order of the blocks
//   thinking         the message's reasoning; redacted_thinking is dropped
//   tool_use         a tool call
//   tool_result      a message of the role tool, in its place between the texts
//   document         its text, if it is plain text
//   a last message of the assistant's with text is gone on with
//
// Images and what Anthropic's own servers do are refused by their place.
#pragma once

#include "server/request/chat_request.h"

namespace pewter::server {

struct MessagesOptions {
  SchemaOptions schema;
  // What a request means that does not speak of thinking. Anthropic's do not think then; nothing:
  // left to the template.
  std::optional<bool> thinks = false;
};

// Errors name Anthropic's field: "messages[0].content[1]: …".
Result<ChatRequest> parse_messages_request(std::string_view body, const MessagesOptions& options);

}  // namespace pewter::server
