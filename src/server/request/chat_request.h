// A request for an answer to a conversation, whichever API it came by: what the parsers of all of
// them fill in, and the parts of it that they read alike.
#pragma once

#include "server/request/generation_fields.h"
#include "server/request/messages.h"
#include "server/request/thinking_fields.h"
#include "text/chat_template.h"
#include "text/output_parser.h"

namespace pewter::server {

struct SchemaOptions {
  SamplingParams defaults;  // where a request is silent
  MessageOptions messages;
  bool own_templates = false;  // a request may bring its chat template
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
  std::shared_ptr<const ChatTemplate> own_template;  // in place of the model's; null: that
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
  std::string echo;  // what comes before the answer's content: the message it goes on with
  std::vector<std::string> unread;  // fields that nobody understood
};

// How the request's tools may be called: where every API's tool_choice ends. `name`: the function
// of kNamed. `path`: the field that says so, for errors; empty when none does.
Status choose_tools(ToolChoice choice, std::string_view name, std::string_view path,
                    ChatRequest& request);

// What "auto", "none" and the API's word for required say; nothing when it is another word.
std::optional<ToolChoice> tool_choice_of(std::string_view word, std::string_view required);

}  // namespace pewter::server
