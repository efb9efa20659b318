#include "server/request/chat_request.h"

namespace pewter::server {

Status choose_tools(ToolChoice choice, std::string_view name, std::string_view path,
                    ChatRequest& request) {
  if (request.chat.tools.is_null()) {
    if (!path.empty()) return bad_request("tool_choice: there are no tools to choose from");
    return {};
  }
  request.tools = std::make_shared<const ToolSchemas>(request.chat.tools);
  if (choice == ToolChoice::kNamed && !request.tools->declares(name))
    return bad_request(str_cat(path, ": there is no tool ", safe_quote(name)));
  request.tool_choice = choice;
  request.tool_name = name;
  return {};
}

std::optional<ToolChoice> tool_choice_of(std::string_view word, std::string_view required) {
  if (word == "auto") return ToolChoice::kAuto;
  if (word == "none") return ToolChoice::kNone;
  if (word == required) return ToolChoice::kRequired;
  return std::nullopt;
}

}  // namespace pewter::server
