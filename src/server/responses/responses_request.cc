#include "server/responses/responses_request.h"

#include <algorithm>
#include <array>

#include "server/request/translation.h"

namespace pewter::server {
namespace {

constexpr std::array<std::string_view, 6> kTextTypes = {
    "input_text", "output_text", "text", "refusal", "summary_text", "reasoning_text"};

Result<std::string> part_text(const Json& part, const std::string& path) {
  TRY_ASSIGN(Fields fields, Fields::of(part, path));
  std::string type;
  TRY(fields.read("type", type));
  if (type == "input_image" || type == "input_file" || type == "input_audio")
    return not_supported(path, "images, files and sound yet");
  if (std::ranges::find(kTextTypes, type) == kTextTypes.end())
    return bad_request(type.empty() ? path + ".type: missing"
                                    : str_cat(path, ".type: a part ", safe_quote(type),
                                              " is not understood here"));
  const std::string_view key = type == "refusal" ? "refusal" : "text";
  std::optional<std::string> text;
  TRY(fields.read(key, text));
  if (!text) return bad_request(str_cat(path, ".", key, ": missing"));
  return *std::move(text);
}

// A text, or a list of parts, one after another.
Result<std::string> text_of(const Json& content, const std::string& path) {
  if (content.is_string()) return content.as_string();
  if (!content.is_array())
    return bad_request(
        str_cat(path, ": want a string or a list of parts, not ", kind_name(content)));
  std::string text;
  for (size_t i = 0; i < content.as_array().size(); ++i) {
    TRY_ASSIGN(const std::string piece,
               part_text(content.as_array()[i], str_cat(path, "[", i, "]")));
    text += piece;
  }
  return text;
}

// Collects messages in the form of the chat API.
class Conversation {
 public:
  void add_system(const std::string& text) { messages_.push_back(chat_message("system", text)); }
  void add_user(const std::string& text) { messages_.push_back(chat_message("user", text)); }
  Status add(const Json& item, const std::string& path);
  Json take() {
    flush();
    return Json(std::move(messages_));
  }

 private:
  Status add_message(Fields& fields, const std::string& path);
  Status add_call(Fields& fields, const std::string& path);
  Status add_output(Fields& fields, const std::string& path);
  Status add_reasoning(Fields& fields, const std::string& path);
  // Ends the assistant's message that is being put together.
  void flush();

  Json::Array messages_;
  std::string text_, reasoning_;
  Json::Array calls_;
  bool in_answer_ = false;
};

void Conversation::flush() {
  if (!in_answer_) return;
  messages_.push_back(assistant_message(text_, reasoning_, std::exchange(calls_, {})));
  text_.clear();
  reasoning_.clear();
  in_answer_ = false;
}

Status Conversation::add(const Json& item, const std::string& path) {
  TRY_ASSIGN(Fields fields, Fields::of(item, path));
  std::string type = "message";
  TRY(fields.read("type", type));
  if (type == "message") return add_message(fields, path);
  if (type == "function_call") return add_call(fields, path);
  if (type == "function_call_output") return add_output(fields, path);
  if (type == "reasoning") return add_reasoning(fields, path);
  if (type == "item_reference")
    return bad_request(path + ".type: nothing is stored here to refer to; send the item itself");
  return not_supported(path + ".type", str_cat("items of the type ", safe_quote(type)));
}

Status Conversation::add_message(Fields& fields, const std::string& path) {
  std::string role;
  TRY(fields.read("role", role));
  const Json* content = fields.take("content");
  if (role.empty()) return bad_request(path + ".role: missing");
  if (content == nullptr) return bad_request(path + ".content: missing");
  TRY_ASSIGN(const std::string text, text_of(*content, path + ".content"));
  if (role == "assistant") {
    // A second text is a second message, unless calls or reasoning come between.
    if (!text_.empty()) flush();
    text_ = text;
    in_answer_ = true;
    return {};
  }
  flush();
  if (role == "system" || role == "developer")
    add_system(text);
  else if (role == "user")
    add_user(text);
  else
    return bad_request(str_cat(path, ".role: unknown role ", safe_quote(role)));
  return {};
}

Status Conversation::add_call(Fields& fields, const std::string& path) {
  std::string id, name;
  std::optional<std::string> arguments;
  TRY(fields.read("call_id", id));
  TRY(fields.read("name", name));
  TRY(fields.read("arguments", arguments));
  if (id.empty()) return bad_request(path + ".call_id: missing");
  if (name.empty()) return bad_request(path + ".name: missing");
  calls_.push_back(chat_call(id, name, arguments.value_or("")));
  in_answer_ = true;
  return {};
}

Status Conversation::add_output(Fields& fields, const std::string& path) {
  std::string id;
  TRY(fields.read("call_id", id));
  if (id.empty()) return bad_request(path + ".call_id: missing");
  const Json* output = fields.take("output");
  if (output == nullptr) return bad_request(path + ".output: missing");
  TRY_ASSIGN(const std::string text, text_of(*output, path + ".output"));
  flush();
  messages_.push_back(tool_message(id, text));
  return {};
}

Status Conversation::add_reasoning(Fields& fields, const std::string& path) {
  // The text itself; or its summary, where that is all a client has.
  for (const char* key : {"content", "summary"}) {
    const Json* parts = fields.take(key);
    if (parts == nullptr) continue;
    TRY_ASSIGN(const std::string text, text_of(*parts, str_cat(path, ".", key)));
    if (text.empty()) continue;
    if (!text_.empty() || !calls_.empty()) flush();
    reasoning_ += text;
    in_answer_ = true;
    return {};
  }
  return {};
}

Status read_input(Fields& fields, const SchemaOptions& options, ChatInput& chat) {
  Conversation conversation;
  std::optional<std::string> instructions;
  TRY(fields.read("instructions", instructions));
  if (instructions && !instructions->empty()) conversation.add_system(*instructions);
  const Json* input = fields.take("input");
  if (input == nullptr) return bad_request("input: missing");
  if (input->is_string()) {
    conversation.add_user(input->as_string());
  } else if (input->is_array()) {
    for (size_t i = 0; i < input->as_array().size(); ++i)
      TRY(conversation.add(input->as_array()[i], str_cat("input[", i, "]")));
  } else {
    return bad_request(str_cat("input: want a string or a list of items, not ", kind_name(*input)));
  }
  Json messages = conversation.take();
  if (messages.as_array().empty()) return bad_request("input: want at least one item");
  TRY_ASSIGN(chat.messages, normalise_messages(messages, options.messages));
  return {};
}

// {type, name, description, parameters, strict} as the chat API has it, one level deeper. Tools
// that OpenAI runs are an offer beside the others, and left out; alone they are what a request is
// about.
Status read_tool(ToolList& list, const Json& tool, const std::string& path) {
  TRY_ASSIGN(Fields fields, Fields::of(tool, path));
  std::string type, name;
  TRY(fields.read("type", type));
  TRY(fields.read("name", name));
  if (type.empty()) return bad_request(path + ".type: missing");
  if (type != "function") {
    list.leave_out(path, type);
    return {};
  }
  if (name.empty()) return bad_request(path + ".name: missing");
  Json function;
  for (const auto& [key, value] : tool.as_object())
    if (key != "type" && !value.is_null()) function.set(key, value);
  list.add(std::move(function));
  return {};
}

Status read_tool_choice(Fields& fields, ChatRequest& request) {
  TRY(fields.read("parallel_tool_calls", request.parallel_tool_calls));
  const Json* choice = fields.take("tool_choice");
  std::string word;
  if (choice != nullptr && choice->is_string()) word = choice->as_string();
  // Clients of this API say "auto" and "none" without tools too.
  if (choice == nullptr || (request.chat.tools.is_null() && (word == "auto" || word == "none")))
    return choose_tools(ToolChoice::kAuto, "", "", request);
  if (choice->is_object()) {
    TRY_ASSIGN(Fields inner, Fields::of(*choice, "tool_choice"));
    std::string type, name;
    TRY(inner.read("type", type));
    TRY(inner.read("name", name));
    if (type != "function")
      return not_supported("tool_choice.type", str_cat("the choice ", safe_quote(type)));
    if (name.empty()) return bad_request("tool_choice.name: missing");
    return choose_tools(ToolChoice::kNamed, name, "tool_choice.name", request);
  }
  if (const auto which = tool_choice_of(word, "required"))
    return choose_tools(*which, "", "tool_choice", request);
  return bad_request("tool_choice: want \"auto\", \"none\", \"required\" or an object");
}

Status read_text(Fields& fields, std::optional<AnswerFormat>& into) {
  const Json* text = fields.take("text");
  if (text == nullptr) return {};
  TRY_ASSIGN(Fields inner, Fields::of(*text, "text"));
  if (const Json* format = inner.take("format"))
    TRY(read_output_format(*format, "text.format", into));
  return {};
}

// What would need a memory of earlier requests, or OpenAI's own servers.
Status refuse_what_is_not_here(Fields& fields) {
  std::optional<std::string> previous;
  TRY(fields.read("previous_response_id", previous));
  if (previous)
    return bad_request(
        "previous_response_id: nothing is stored here; send the full input of the conversation");
  std::optional<int64_t> top;
  TRY(fields.read("top_logprobs", top, {.least = 0}));
  if (top.value_or(0) > 0)
    return not_supported("top_logprobs", "log-probabilities in this API yet");
  return fields.refuse({"background", "conversation", "prompt"});
}

// 0.95 for the float next to it.
Json shortest(float value) { return Json::parse(str_cat(value)).value(); }

// With OpenAI's defaults where the request is silent; clients expect every key.
Json echo_of(const Json& body, const ChatRequest& request) {
  const auto given = [&](const char* key, const Json& otherwise) {
    const Json* value = body.find(key);
    return value == nullptr || value->is_null() ? otherwise : *value;
  };
  Json text, format, reasoning, echo;
  format.set("type", "text");
  text.set("format", std::move(format));
  reasoning.set("effort", request.thinking.effort.empty() ? Json() : Json(request.thinking.effort));
  reasoning.set("summary", nullptr);
  echo.set("background", false);
  echo.set("instructions", given("instructions", {}));
  echo.set("max_output_tokens", given("max_output_tokens", {}));
  echo.set("metadata", given("metadata", Json::Object{}));
  echo.set("parallel_tool_calls", request.parallel_tool_calls);
  echo.set("previous_response_id", nullptr);
  echo.set("reasoning", std::move(reasoning));
  echo.set("service_tier", "default");
  echo.set("store", false);
  echo.set("temperature", shortest(request.generation.sampling.temperature));
  echo.set("text", given("text", text));
  echo.set("tool_choice", given("tool_choice", "auto"));
  echo.set("tools", given("tools", Json::Array{}));
  echo.set("top_p", shortest(request.generation.sampling.top_p));
  echo.set("truncation", "disabled");
  echo.set("user", given("user", {}));
  return echo;
}

}  // namespace

Result<ResponsesRequest> parse_responses_request(std::string_view body,
                                                 const SchemaOptions& options) {
  TRY_ASSIGN(const Json json, parse_body(body));
  TRY_ASSIGN(Fields fields, Fields::of(json, ""));
  ResponsesRequest request;
  ChatRequest& chat = request.chat;
  TRY(read_generation(fields, options.defaults, chat.generation));
  TRY(refuse_reports(fields));
  if (chat.generation.n != 1) return bad_request("n: this API has one answer a request");
  TRY(fields.read("max_output_tokens", chat.generation.max_tokens, {.least = 1}));
  TRY(refuse_what_is_not_here(fields));
  TRY(read_input(fields, options, chat.chat));
  ToolList tools;
  TRY(read_tools(fields, tools, read_tool));
  TRY_ASSIGN(chat.chat.tools, tools.take("OpenAI"));
  TRY(read_tool_choice(fields, chat));
  TRY(read_text(fields, chat.generation.format));
  TRY(read_thinking(fields, chat.chat.template_kwargs, chat.thinking));
  fields.ignore({"include", "truncation", "max_tool_calls", "client_metadata", "context_management",
                 "prompt_cache_retention"});
  chat.unread = fields.unread();
  chat.unread.insert(chat.unread.end(), tools.left_out().begin(), tools.left_out().end());
  options.tell(fields);
  request.echo = echo_of(json, chat);
  return request;
}

}  // namespace pewter::server
