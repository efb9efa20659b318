// What the translators of other APIs share: the pieces of a conversation in the form of the chat
// API, which is where they all lead.
#pragma once

#include "server/request/fields.h"

namespace pewter::server {

// kUnsupported: "PATH: this server does not support WHAT".
Error not_supported(const std::string& path, std::string_view what);

// {"role", "content"}
Json chat_message(std::string_view role, std::string_view content);
// What a tool answered to the call of this id.
Json tool_message(std::string_view call_id, std::string_view content);
// A call of an assistant's message; arguments as an object or as its text.
Json chat_call(std::string_view id, std::string_view name, Json arguments);
// An assistant's message: with reasoning and calls only where there are some.
Json assistant_message(std::string_view content, std::string_view reasoning, Json::Array calls);

// Tools as a translator reads them one by one.
class ToolList {
 public:
  // {"name", "description", "parameters", …}
  void add(Json function);
  // A tool that the API's makers run themselves: an offer beside the others.
  void leave_out(const std::string& path, std::string_view type) {
    left_out_.push_back(str_cat(path, ".type=", type));
  }
  // For the log.
  const std::vector<std::string>& left_out() const { return left_out_; }
  // The list, or null. Error: kUnsupported when all were left out, for then they are what the
  // request is about. `makers`: whose tools they are.
  Result<Json> take(std::string_view makers);

 private:
  Json::Array list_;
  std::vector<std::string> left_out_;
};

// Reads the request's list of tools: calls read(list, tool, path) for each.
template <typename Read>
Status read_tools(Fields& fields, ToolList& list, Read read) {
  const Json* tools = fields.take("tools");
  if (tools == nullptr) return {};
  if (!tools->is_array())
    return bad_request(str_cat("tools: want a list, not ", kind_name(*tools)));
  for (size_t i = 0; i < tools->as_array().size(); ++i)
    TRY(read(list, tools->as_array()[i], str_cat("tools[", i, "]")));
  return {};
}

}  // namespace pewter::server
