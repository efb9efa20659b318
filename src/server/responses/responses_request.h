// The body of POST /v1/responses as a ChatRequest: items become the messages that chat templates
// expect. Nothing is stored between requests, so the input is always the whole conversation.
//
//   instructions              a system message; so are items of the roles system and developer
//   message                   text of its role
//   reasoning, function_call  with the assistant's message beside them, one message
//   function_call_output      a message of the role tool
//
// Images, files, and tools that OpenAI runs itself are refused by their place.
#pragma once

#include "server/request/chat_request.h"

namespace pewter::server {

struct ResponsesRequest {
  ChatRequest chat;
  Json echo;  // an object: what the response repeats of the request
};

// Errors name the field: "input[0].content[1]: …".
Result<ResponsesRequest> parse_responses_request(std::string_view body,
                                                 const SchemaOptions& options);

}  // namespace pewter::server
