#include "server/request/translation.h"

namespace pewter::server {

Error not_supported(const std::string& path, std::string_view what) {
  return {ErrorCode::kUnsupported, str_cat(path, ": this server does not support ", what)};
}

Json chat_message(std::string_view role, std::string_view content) {
  Json json;
  json.set("role", role);
  json.set("content", content);
  return json;
}

Json tool_message(std::string_view call_id, std::string_view content) {
  Json json = chat_message("tool", content);
  json.set("tool_call_id", call_id);
  return json;
}

Json chat_call(std::string_view id, std::string_view name, Json arguments) {
  Json function, call;
  function.set("name", name);
  function.set("arguments", std::move(arguments));
  call.set("id", id);
  call.set("type", "function");
  call.set("function", std::move(function));
  return call;
}

Json assistant_message(std::string_view content, std::string_view reasoning, Json::Array calls) {
  Json json = chat_message("assistant", content);
  if (!reasoning.empty()) json.set("reasoning_content", reasoning);
  if (!calls.empty()) json.set("tool_calls", Json(std::move(calls)));
  return json;
}

void ToolList::add(Json function) {
  Json tool;
  tool.set("type", "function");
  tool.set("function", std::move(function));
  list_.push_back(std::move(tool));
}

Result<Json> ToolList::take(std::string_view makers) {
  if (!list_.empty()) return Json(std::move(list_));
  if (!left_out_.empty())
    return not_supported("tools[0].type",
                         str_cat("tools that ", makers, " runs itself, and there are no others"));
  return Json();
}

}  // namespace pewter::server
