#include "server/request/messages.h"

#include <algorithm>
#include <array>

#include "base/blanks.h"
#include "server/request/fields.h"

namespace pewter::server {
namespace {

constexpr std::string_view kBillingLine = "x-anthropic-billing-header:";

bool is_text_part(std::string_view type) {
  return type == "text" || type == "input_text" || type == "output_text" || type == "refusal";
}

// The medium a part carries, if it is not text: by its type, or by its key, as templates look.
std::string_view medium_of(const Json& part, std::string_view type) {
  static constexpr std::array<std::pair<std::string_view, std::string_view>, 9> kMedia = {
      {{"image", "image"},
       {"image_url", "image"},
       {"input_image", "image"},
       {"video", "video"},
       {"video_url", "video"},
       {"input_audio", "audio"},
       {"audio", "audio"},
       {"audio_url", "audio"},
       {"file", "file"}}};
  for (const auto& [name, medium] : kMedia)
    if (type == name || part.find(name) != nullptr) return medium;
  return {};
}

Result<std::string> part_text(const Json& part, const std::string& path) {
  if (part.is_string()) return part.as_string();
  TRY_ASSIGN(Fields fields, Fields::of(part, path));
  std::string type;
  TRY(fields.read("type", type));
  if (const std::string_view medium = medium_of(part, type); !medium.empty())
    return Error{ErrorCode::kUnsupported,
                 str_cat(path, ": ", medium, " parts are not supported by this server yet")};
  if (!type.empty() && !is_text_part(type))
    return bad_request(str_cat(path, ": unknown type ", safe_quote(type), "; want \"text\""));
  std::optional<std::string> text;
  TRY(fields.read(type == "refusal" ? "refusal" : "text", text));
  if (!text) return bad_request(str_cat(path, ".text: missing"));
  return *text;
}

// Drops the billing line a system text may begin with.
std::string without_billing(const std::string& text) {
  if (!text.starts_with(kBillingLine)) return text;
  const size_t end = text.find('\n');
  return end == std::string::npos ? "" : text.substr(end + 1);
}

Result<std::string> content_text(const Json* content, const std::string& path, bool is_system) {
  if (content == nullptr || content->is_null()) return std::string();
  if (content->is_string())
    return is_system ? without_billing(content->as_string()) : content->as_string();
  if (!content->is_array())
    return bad_request(
        str_cat(path, ": want a string or a list of parts, not ", kind_name(*content)));
  std::string text;
  for (size_t i = 0; i < content->as_array().size(); ++i) {
    TRY_ASSIGN(const std::string part,
               part_text(content->as_array()[i], str_cat(path, "[", i, "]")));
    text += is_system ? without_billing(part) : part;
  }
  return text;
}

// An object of arguments: as it is, parsed from its JSON text, or, when that is none, a single
// argument with the raw text. A model's own broken call must not make its history unusable.
Json arguments_object(const Json* arguments) {
  if (arguments == nullptr || arguments->is_null()) return Json(Json::Object{});
  if (arguments->is_object()) return *arguments;
  const std::string text = arguments->is_string() ? arguments->as_string() : arguments->dump();
  if (is_blank(text)) return Json(Json::Object{});
  if (Result<Json> parsed = Json::parse(text, {.max_depth = 64}); parsed) {
    if (parsed->is_object()) return *std::move(parsed);
    if (parsed->is_null()) return Json(Json::Object{});
  }
  Json raw;
  raw.set("arguments", text);
  return raw;
}

Result<Json> call_of(const Json& call, const std::string& path, bool is_function) {
  TRY_ASSIGN(Fields fields, Fields::of(call, path));
  const Json* function = is_function ? &call : fields.take("function");
  if (function == nullptr) function = &call;
  const std::string function_path = function == &call ? path : path + ".function";
  TRY_ASSIGN(Fields inner, Fields::of(*function, function_path));
  std::string name;
  TRY(inner.read("name", name));
  if (name.empty()) return bad_request(function_path + ".name: missing");
  Json normal;
  if (const Json* id = is_function ? nullptr : fields.take("id")) normal.set("id", *id);
  normal.set("type", "function");
  Json inside;
  inside.set("name", name);
  inside.set("arguments", arguments_object(inner.take("arguments")));
  normal.set("function", std::move(inside));
  return normal;
}

Status add_calls(const Json& message, const std::string& path, Json& into) {
  Json::Array calls;
  const Json* list = message.find("tool_calls");
  if (list != nullptr && !list->is_null()) {
    if (!list->is_array())
      return bad_request(str_cat(path, ".tool_calls: want a list, not ", kind_name(*list)));
    for (const Json& call : list->as_array()) {
      TRY_ASSIGN(Json normal, call_of(call, str_cat(path, ".tool_calls[", calls.size(), "]"),
                                      /*is_function=*/false));
      calls.push_back(std::move(normal));
    }
  }
  const Json* old = message.find("function_call");
  if (calls.empty() && old != nullptr && !old->is_null()) {
    TRY_ASSIGN(Json normal, call_of(*old, path + ".function_call", /*is_function=*/true));
    calls.push_back(std::move(normal));
  }
  if (!calls.empty()) into.set("tool_calls", Json(std::move(calls)));
  return {};
}

Status add_reasoning(const Json& message, const std::string& path, Json& into) {
  for (const char* name : {"reasoning", "reasoning_content"}) {
    const Json* value = message.find(name);
    if (value == nullptr || value->is_null()) continue;
    if (!value->is_string())
      return bad_request(str_cat(path, ".", name, ": want a string, not ", kind_name(*value)));
    into.set("reasoning_content", *value);
  }
  return {};
}

Result<Json> normalise_message(const Json& message, const std::string& path) {
  TRY_ASSIGN(Fields fields, Fields::of(message, path));
  std::string role;
  TRY(fields.read("role", role));
  if (role.empty()) return bad_request(path + ".role: missing");
  if (role == "developer") role = "system";
  if (role == "function") role = "tool";
  if (role != "system" && role != "user" && role != "assistant" && role != "tool")
    return bad_request(str_cat(path, ".role: unknown role ", safe_quote(role)));
  const bool may_lack_content = role == "assistant";
  if (!may_lack_content && message.find("content") == nullptr)
    return bad_request(path + ".content: missing");
  TRY_ASSIGN(std::string text,
             content_text(message.find("content"), path + ".content", role == "system"));

  Json normal;
  normal.set("role", role);
  normal.set("content", std::move(text));
  if (role == "assistant") {
    TRY(add_reasoning(message, path, normal));
    TRY(add_calls(message, path, normal));
  }
  for (const char* name : {"name", "tool_call_id"}) {
    std::optional<std::string> value;
    TRY(fields.read(name, value));
    if (value) normal.set(name, *value);
  }
  return normal;
}

bool is_system(const Json& message) { return message.find("role")->as_string() == "system"; }

// All system messages as one, in front.
Json::Array merge_system(Json::Array messages) {
  const auto count = std::ranges::count_if(messages, is_system);
  if (count == 0 || (count == 1 && is_system(messages.front()))) return messages;
  std::string text;
  for (const Json& message : messages) {
    if (!is_system(message)) continue;
    const std::string& part = message.find("content")->as_string();
    if (!text.empty() && !part.empty()) text += "\n\n";
    text += part;
  }
  Json::Array merged(1);
  merged.front().set("role", "system");
  merged.front().set("content", text);
  for (Json& message : messages)
    if (!is_system(message)) merged.push_back(std::move(message));
  return merged;
}

}  // namespace

Result<Json> normalise_messages(const Json& messages, const MessageOptions& options) {
  if (!messages.is_array())
    return bad_request(str_cat("messages: want a list, not ", kind_name(messages)));
  if (messages.as_array().empty()) return bad_request("messages: want at least one message");
  Json::Array normal;
  for (size_t i = 0; i < messages.as_array().size(); ++i) {
    TRY_ASSIGN(Json message,
               normalise_message(messages.as_array()[i], str_cat("messages[", i, "]")));
    // A system message that was nothing but a billing line.
    const Json* given = messages.as_array()[i].find("content");
    if (is_system(message) && message.find("content")->as_string().empty() && given->is_string() &&
        !given->as_string().empty())
      continue;
    normal.push_back(std::move(message));
  }
  if (normal.empty()) return bad_request("messages: want at least one message");
  if (!options.strict) normal = merge_system(std::move(normal));
  return Json(std::move(normal));
}

Result<Json> check_tools(const Json& tools) {
  if (!tools.is_array()) return bad_request(str_cat("tools: want a list, not ", kind_name(tools)));
  if (tools.as_array().empty()) return Json();
  for (size_t i = 0; i < tools.as_array().size(); ++i) {
    const std::string path = str_cat("tools[", i, "]");
    TRY_ASSIGN(Fields fields, Fields::of(tools.as_array()[i], path));
    const Json* function = fields.take("function");
    if (function == nullptr) return bad_request(path + ".function: missing");
    TRY_ASSIGN(Fields inner, Fields::of(*function, path + ".function"));
    std::string name;
    TRY(inner.read("name", name));
    if (name.empty()) return bad_request(path + ".function.name: missing");
  }
  return tools;
}

}  // namespace pewter::server
