#include "server/openai/schema.h"

#include <algorithm>

#include "backend/ops.h"
#include "base/blanks.h"

namespace pewter::server {
namespace {

constexpr size_t kMostPrompts = 2048;

// A template of the request's own: a program that the server runs, though a small one that can do
// nothing but make a text, and within limits.
Status read_template(Fields& fields, const SchemaOptions& options, ChatInput& chat) {
  std::optional<std::string> source;
  TRY(fields.read("chat_template", source));
  if (!source || source->empty()) return {};
  if (!options.own_templates)
    return Error{ErrorCode::kUnsupported,
                 "chat_template: this server renders no templates that requests bring; it would "
                 "with --trust-request-chat-template"};
  Result<ChatTemplate> parsed = ChatTemplate::parse(*std::move(source));
  if (!parsed) return bad_request(str_cat("chat_template: ", parsed.error().message));
  chat.own_template = std::make_shared<const ChatTemplate>(*std::move(parsed));
  return {};
}

Status read_chat_input(Fields& fields, const SchemaOptions& options, ChatInput& chat,
                       Thinking& thinking) {
  const Json* messages = fields.take("messages");
  if (messages == nullptr) return bad_request("messages: missing");
  TRY_ASSIGN(chat.messages, normalise_messages(*messages, options.messages));
  if (const Json* tools = fields.take("tools")) {
    TRY_ASSIGN(chat.tools, check_tools(*tools));
  }
  TRY(read_thinking(fields, chat.template_kwargs, thinking));
  TRY(read_template(fields, options, chat));
  std::optional<bool> prompt;
  TRY(fields.read("add_generation_prompt", prompt));
  TRY(fields.read("continue_final_message", chat.continue_final_message));
  if (chat.continue_final_message) {
    // OpenAI clients cannot leave out what they do not know: false wins over a default of true.
    if (prompt.value_or(false))
      return bad_request("continue_final_message: not together with add_generation_prompt: true");
    const Json& last = chat.messages.as_array().back();
    if (last.find("role")->as_string() != "assistant" ||
        is_blank(last.find("content")->as_string()))
      return bad_request(
          "continue_final_message: the last message is no assistant's with a text to go on from");
    prompt = false;
  }
  chat.add_generation_prompt = prompt.value_or(true);
  return {};
}

// The name in {"type": "function", "function": {"name"}}.
Result<std::string> chosen_function(const Json& choice) {
  TRY_ASSIGN(Fields fields, Fields::of(choice, "tool_choice"));
  std::string type = "function", name;
  TRY(fields.read("type", type));
  if (type != "function")
    return Error{ErrorCode::kUnsupported, str_cat("tool_choice.type: ", safe_quote(type),
                                                  " is not supported by this server")};
  const Json* function = fields.take("function");
  if (function == nullptr) return bad_request("tool_choice.function: missing");
  TRY_ASSIGN(Fields inner, Fields::of(*function, "tool_choice.function"));
  TRY(inner.read("name", name));
  if (name.empty()) return bad_request("tool_choice.function.name: missing");
  return name;
}

Status read_tool_choice(Fields& fields, ChatRequest& request) {
  TRY(fields.read("parallel_tool_calls", request.parallel_tool_calls));
  const Json* choice = fields.take("tool_choice");
  if (choice == nullptr) return choose_tools(ToolChoice::kAuto, "", "", request);
  if (choice->is_object()) {
    TRY_ASSIGN(const std::string name, chosen_function(*choice));
    return choose_tools(ToolChoice::kNamed, name, "tool_choice.function.name", request);
  }
  if (!choice->is_string())
    return bad_request(
        str_cat("tool_choice: want a string or an object, not ", kind_name(*choice)));
  const std::string& name = choice->as_string();
  if (const auto which = tool_choice_of(name, "required"))
    return choose_tools(*which, "", "tool_choice", request);
  return bad_request(
      str_cat("tool_choice: ", safe_quote(name), " is none of \"auto\", \"none\", \"required\""));
}

Status read_chat_logprobs(Fields& fields, GenerationFields& into) {
  bool logprobs = false;
  std::optional<int64_t> top;
  TRY(fields.read("logprobs", logprobs));
  TRY(fields.read("top_logprobs", top, {.least = 0, .most = kTopLogprobs}));
  if (top && !logprobs) return bad_request("top_logprobs: only together with logprobs: true");
  if (logprobs) into.logprobs = top.value_or(0);
  return {};
}

Result<PromptText> prompt_ids(const Json& list, const std::string& path) {
  std::vector<int32_t> ids;
  ids.reserve(list.as_array().size());
  for (const Json& item : list.as_array()) {
    TRY_ASSIGN(const int64_t id, integer_value(item, str_cat(path, "[", ids.size(), "]"),
                                               {.least = 0, .most = INT32_MAX}));
    ids.push_back(static_cast<int32_t>(id));
  }
  return PromptText(std::move(ids));
}

// A text, ids, or a list of texts or of lists of ids.
Result<std::vector<PromptText>> read_prompts(const Json& prompt) {
  std::vector<PromptText> prompts;
  if (prompt.is_string()) {
    prompts.emplace_back(prompt.as_string());
    return prompts;
  }
  if (!prompt.is_array())
    return bad_request(
        str_cat("prompt: want a string, a list of token ids, or a list of either, not ",
                kind_name(prompt)));
  const Json::Array& list = prompt.as_array();
  if (list.empty()) return bad_request("prompt: the list is empty");
  if (list.front().is_number()) {
    TRY_ASSIGN(PromptText ids, prompt_ids(prompt, "prompt"));
    prompts.push_back(std::move(ids));
    return prompts;
  }
  if (list.size() > kMostPrompts)
    return bad_request(str_cat("prompt: more than ", kMostPrompts, " prompts"));
  for (const Json& item : list) {
    const std::string path = str_cat("prompt[", prompts.size(), "]");
    if (item.is_string()) {
      prompts.emplace_back(item.as_string());
    } else if (item.is_array()) {
      TRY_ASSIGN(PromptText ids, prompt_ids(item, path));
      prompts.push_back(std::move(ids));
    } else {
      return bad_request(
          str_cat(path, ": want a string or a list of token ids, not ", kind_name(item)));
    }
  }
  return prompts;
}

}  // namespace

Result<ChatRequest> parse_chat_request(std::string_view body, const SchemaOptions& options) {
  TRY_ASSIGN(const Json json, parse_body(body));
  TRY_ASSIGN(Fields fields, Fields::of(json, ""));
  ChatRequest request;
  TRY(read_generation(fields, options.defaults, request.generation));
  TRY(read_chat_logprobs(fields, request.generation));
  TRY(read_reports(fields, request.generation));
  // The older spelling of tools and tool_choice, whose answers have another form too.
  TRY(fields.refuse({"audio", "web_search_options", "functions", "function_call"}));
  TRY(read_chat_input(fields, options, request.chat, request.thinking));
  bool echo = false;
  TRY(fields.read("echo", echo));
  const Json& last = request.chat.messages.as_array().back();
  if (echo && last.find("role")->as_string() == "assistant")
    request.echo = last.find("content")->as_string();
  TRY(read_tool_choice(fields, request));
  TRY(fields.read("include_reasoning", request.include_reasoning));
  fields.ignore({"modalities", "prediction", "reasoning_format"});
  request.unread = fields.unread();
  options.tell(fields);
  return request;
}

Result<CompletionRequest> parse_completion_request(std::string_view body,
                                                   const SchemaOptions& options) {
  TRY_ASSIGN(const Json json, parse_body(body));
  TRY_ASSIGN(Fields fields, Fields::of(json, ""));
  CompletionRequest request;
  TRY(read_generation(fields, options.defaults, request.generation));
  std::optional<int64_t> logprobs;
  TRY(fields.read("logprobs", logprobs, {.least = 0, .most = kTopLogprobs}));
  request.generation.logprobs = logprobs.value_or(-1);
  TRY(fields.read("echo", request.echo));
  TRY(read_reports(fields, request.generation));
  TRY(fields.refuse({"suffix", "thinking_token_budget", "thinking_budget"}));
  std::optional<int64_t> best_of;
  TRY(fields.read("best_of", best_of, {.least = 1}));
  if (best_of && *best_of != request.generation.n)
    return Error{ErrorCode::kUnsupported, "best_of: this server supports no choice among answers"};
  fields.ignore({"add_special_tokens"});  // the tokenizers of this family add none
  const Json* prompt = fields.take("prompt");
  if (prompt == nullptr) return bad_request("prompt: missing");
  TRY_ASSIGN(request.prompts, read_prompts(*prompt));
  const auto choices = static_cast<int64_t>(request.prompts.size()) * request.generation.n;
  if (choices > static_cast<int64_t>(kMostPrompts))
    return bad_request(str_cat("n: ", choices, " answers in all are more than ", kMostPrompts));
  request.unread = fields.unread();
  options.tell(fields);
  return request;
}

Result<TokenizeRequest> parse_tokenize_request(std::string_view body,
                                               const SchemaOptions& options) {
  TRY_ASSIGN(const Json json, parse_body(body));
  TRY_ASSIGN(Fields fields, Fields::of(json, ""));
  TokenizeRequest request;
  TRY(fields.read("model", request.model));
  bool pieces = false;
  TRY(fields.read("return_token_strs", request.with_pieces));
  TRY(fields.read("with_pieces", pieces));
  request.with_pieces |= pieces;
  if (json.find("messages") != nullptr) {
    request.chat.emplace();
    Thinking thinking;  // says nothing about the prompt
    TRY(read_chat_input(fields, options, *request.chat, thinking));
    options.tell(fields);
    return request;
  }
  std::optional<std::string> text;
  TRY(fields.read("content", text));  // llama.cpp's name
  TRY(fields.read("prompt", text));
  if (!text) return bad_request("prompt: missing (or content, or messages)");
  request.text = std::move(*text);
  options.tell(fields);
  return request;
}

Result<DetokenizeRequest> parse_detokenize_request(std::string_view body) {
  TRY_ASSIGN(const Json json, parse_body(body));
  TRY_ASSIGN(Fields fields, Fields::of(json, ""));
  DetokenizeRequest request;
  TRY(fields.read("model", request.model));
  if (fields.take("tokens") == nullptr) return bad_request("tokens: missing");
  TRY(fields.read_ids("tokens", request.tokens));
  return request;
}

}  // namespace pewter::server
