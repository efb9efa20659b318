#include "server/anthropic/messages_request.h"

#include "base/blanks.h"
#include "server/request/translation.h"

namespace pewter::server {
namespace {

// A block of content, whose type is known and whose other fields are still to be read.
struct Block {
  Fields fields;
  std::string type, path;

  static Result<Block> of(const Json& json, std::string path) {
    TRY_ASSIGN(Fields fields, Fields::of(json, path));
    Block block{.fields = std::move(fields), .type = {}, .path = std::move(path)};
    TRY(block.fields.read("type", block.type));
    if (block.type.empty()) return bad_request(block.path + ".type: missing");
    return block;
  }
  Result<std::string> required(std::string_view key) {
    std::optional<std::string> value;
    TRY(fields.read(key, value));
    if (!value) return bad_request(str_cat(path, ".", key, ": missing"));
    return *std::move(value);
  }
};

// Blocks that every message may have: texts, and what stands for one.
Result<std::string> text_of(Block& block) {
  if (block.type == "text") return block.required("text");
  if (block.type == "document") {
    const Json* source = block.fields.take("source");
    if (source == nullptr) return bad_request(block.path + ".source: missing");
    TRY_ASSIGN(Block inner, Block::of(*source, block.path + ".source"));
    if (inner.type != "text") return not_supported(block.path, "documents that are not plain text");
    return inner.required("data");
  }
  if (block.type == "image") return not_supported(block.path, "images yet");
  return bad_request(
      str_cat(block.path, ".type: a block ", safe_quote(block.type), " is not understood here"));
}

// Text, or blocks that all are text, joined by `between`.
Result<std::string> only_text(const Json& content, const std::string& path,
                              std::string_view between) {
  if (content.is_string()) return content.as_string();
  if (!content.is_array())
    return bad_request(
        str_cat(path, ": want a string or a list of blocks, not ", kind_name(content)));
  std::string text;
  for (size_t i = 0; i < content.as_array().size(); ++i) {
    TRY_ASSIGN(Block block, Block::of(content.as_array()[i], str_cat(path, "[", i, "]")));
    TRY_ASSIGN(const std::string piece, text_of(block));
    if (!text.empty() && !piece.empty()) text += between;
    text += piece;
  }
  return text;
}

// Collects messages in the form of the chat API.
class Conversation {
 public:
  Status add_system(const Json& system);
  Status add(const Json& message, const std::string& path);
  // The last message is the beginning of the answer.
  bool ends_with_answer() const {
    const Json& last = messages_.back();
    return last.find("role")->as_string() == "assistant" && last.find("tool_calls") == nullptr &&
           !is_blank(last.find("content")->as_string());
  }
  Json take() { return Json(std::move(messages_)); }

 private:
  Status add_user(const Json& content, const std::string& path);
  Status add_result(Block& block);
  Status add_assistant(const Json& content, const std::string& path);

  Json::Array messages_;
};

Status Conversation::add_system(const Json& system) {
  // Each block is judged by itself: the first may be a billing line.
  const auto add_text = [this](const std::string& text) {
    if (text.starts_with("x-anthropic-billing-header:") || text.empty()) return;
    if (messages_.empty())
      messages_.push_back(chat_message("system", text));
    else
      messages_.back().set("content",
                           messages_.back().find("content")->as_string() + "\n\n" + text);
  };
  if (!system.is_array()) {
    TRY_ASSIGN(const std::string text, only_text(system, "system", ""));
    add_text(text);
    return {};
  }
  for (size_t i = 0; i < system.as_array().size(); ++i) {
    TRY_ASSIGN(Block block, Block::of(system.as_array()[i], str_cat("system[", i, "]")));
    TRY_ASSIGN(const std::string text, text_of(block));
    add_text(text);
  }
  return {};
}

Status Conversation::add(const Json& given, const std::string& path) {
  TRY_ASSIGN(Fields fields, Fields::of(given, path));
  std::string role;
  TRY(fields.read("role", role));
  const Json* content = fields.take("content");
  if (role != "user" && role != "assistant" && role != "system")
    return bad_request(role.empty() ? path + ".role: missing"
                                    : str_cat(path, ".role: ", safe_quote(role),
                                              " is none of \"user\", \"assistant\""));
  if (content == nullptr) return bad_request(path + ".content: missing");
  if (role == "user") return add_user(*content, path + ".content");
  if (role == "assistant") return add_assistant(*content, path + ".content");
  TRY_ASSIGN(const std::string text, only_text(*content, path + ".content", "\n\n"));
  messages_.push_back(chat_message("system", text));
  return {};
}

Status Conversation::add_user(const Json& content, const std::string& path) {
  if (!content.is_array()) {
    TRY_ASSIGN(const std::string text, only_text(content, path, ""));
    messages_.push_back(chat_message("user", text));
    return {};
  }
  std::optional<std::string> text;
  const auto flush = [&] {
    if (text) messages_.push_back(chat_message("user", *text));
    text.reset();
  };
  for (size_t i = 0; i < content.as_array().size(); ++i) {
    TRY_ASSIGN(Block block, Block::of(content.as_array()[i], str_cat(path, "[", i, "]")));
    if (block.type == "tool_result") {
      flush();
      TRY(add_result(block));
    } else {
      TRY_ASSIGN(const std::string piece, text_of(block));
      text = text.value_or("") + piece;
    }
  }
  if (content.as_array().empty()) text = "";
  flush();
  return {};
}

Status Conversation::add_result(Block& block) {
  TRY_ASSIGN(const std::string id, block.required("tool_use_id"));
  const Json* content = block.fields.take("content");
  std::string text;
  if (content != nullptr) {
    TRY_ASSIGN(text, only_text(*content, block.path + ".content", "\n"));
  }
  messages_.push_back(tool_message(id, text));
  return {};
}

Status Conversation::add_assistant(const Json& content, const std::string& path) {
  if (!content.is_array()) {
    TRY_ASSIGN(const std::string text, only_text(content, path, ""));
    messages_.push_back(chat_message("assistant", text));
    return {};
  }
  std::string text, thinking;
  Json::Array calls;
  for (size_t i = 0; i < content.as_array().size(); ++i) {
    TRY_ASSIGN(Block block, Block::of(content.as_array()[i], str_cat(path, "[", i, "]")));
    if (block.type == "thinking") {
      TRY_ASSIGN(const std::string piece, block.required("thinking"));
      thinking += piece;
    } else if (block.type == "tool_use") {
      TRY_ASSIGN(const std::string id, block.required("id"));
      TRY_ASSIGN(const std::string name, block.required("name"));
      const Json* input = block.fields.take("input");
      calls.push_back(chat_call(id, name, input == nullptr ? Json(Json::Object{}) : *input));
    } else if (block.type != "redacted_thinking") {
      TRY_ASSIGN(const std::string piece, text_of(block));
      text += piece;
    }
  }
  messages_.push_back(assistant_message(text, thinking, std::move(calls)));
  return {};
}

// {name, description, input_schema} as the chat API has it. What else stands there, such as
// cache_control, is about the transport and would only change the prompt. Tools that Anthropic runs
// are an offer beside the others, and left out; alone they are what a request is about.
Status read_tool(ToolList& list, const Json& tool, const std::string& path) {
  TRY_ASSIGN(Fields fields, Fields::of(tool, path));
  std::string type = "custom", name;
  std::optional<std::string> description;
  TRY(fields.read("type", type));
  if (type != "custom") {
    list.leave_out(path, type);
    return {};
  }
  TRY(fields.read("name", name));
  if (name.empty()) return bad_request(path + ".name: missing");
  TRY(fields.read("description", description));
  const Json* schema = fields.take("input_schema");
  if (schema == nullptr) return bad_request(path + ".input_schema: missing");
  TRY(Fields::of(*schema, path + ".input_schema"));
  Json function;
  function.set("name", name);
  if (description) function.set("description", *description);
  function.set("parameters", *schema);
  if (const Json* strict = fields.take("strict")) function.set("strict", *strict);
  list.add(std::move(function));
  return {};
}

Status read_tool_choice(Fields& fields, ChatRequest& request) {
  const Json* choice = fields.take("tool_choice");
  if (choice == nullptr) return choose_tools(ToolChoice::kAuto, "", "", request);
  TRY_ASSIGN(Fields inner, Fields::of(*choice, "tool_choice"));
  std::string type, name;
  bool one = false;
  TRY(inner.read("type", type));
  TRY(inner.read("name", name));
  TRY(inner.read("disable_parallel_tool_use", one));
  request.parallel_tool_calls = !one;
  if (const auto which = tool_choice_of(type, "any"))
    return choose_tools(*which, "", "tool_choice", request);
  if (type != "tool")
    return bad_request(str_cat("tool_choice.type: ", safe_quote(type),
                               " is none of \"auto\", \"any\", \"tool\", \"none\""));
  if (name.empty()) return bad_request("tool_choice.name: missing");
  return choose_tools(ToolChoice::kNamed, name, "tool_choice.name", request);
}

// {"effort": "low", "format": {…}}
Status read_output_config(Fields& fields, ChatRequest& request) {
  const Json* config = fields.take("output_config");
  if (config == nullptr) return {};
  TRY_ASSIGN(Fields inner, Fields::of(*config, "output_config"));
  TRY(inner.read("effort", request.thinking.effort));
  if (const Json* format = inner.take("format"))
    TRY(read_output_format(*format, "output_config.format", request.generation.format));
  return {};
}

Status read_conversation(Fields& fields, const SchemaOptions& options, ChatInput& chat) {
  const Json* messages = fields.take("messages");
  if (messages == nullptr) return bad_request("messages: missing");
  if (!messages->is_array())
    return bad_request(str_cat("messages: want a list, not ", kind_name(*messages)));
  if (messages->as_array().empty()) return bad_request("messages: want at least one message");
  Conversation conversation;
  if (const Json* system = fields.take("system")) TRY(conversation.add_system(*system));
  for (size_t i = 0; i < messages->as_array().size(); ++i)
    TRY(conversation.add(messages->as_array()[i], str_cat("messages[", i, "]")));
  chat.continue_final_message = conversation.ends_with_answer();
  chat.add_generation_prompt = !chat.continue_final_message;
  TRY_ASSIGN(chat.messages, normalise_messages(conversation.take(), options.messages));
  return {};
}

}  // namespace

Result<ChatRequest> parse_messages_request(std::string_view body, const MessagesOptions& options) {
  TRY_ASSIGN(const Json json, parse_body(body));
  TRY_ASSIGN(Fields fields, Fields::of(json, ""));
  ChatRequest request;
  GenerationFields& generation = request.generation;
  TRY(read_generation(fields, options.schema.defaults, generation));
  TRY(refuse_reports(fields));
  if (generation.n != 1) return bad_request("n: this API has one answer a request");
  TRY(fields.read_strings("stop_sequences", generation.stops, kMostStops));
  std::erase(generation.stops, "");
  TRY(read_conversation(fields, options.schema, request.chat));
  ToolList tools;
  TRY(read_tools(fields, tools, read_tool));
  TRY_ASSIGN(request.chat.tools, tools.take("Anthropic"));
  TRY(read_tool_choice(fields, request));
  TRY(read_output_config(fields, request));
  TRY(read_thinking(fields, request.chat.template_kwargs, request.thinking));
  if (options.thinks && request.chat.template_kwargs.find("enable_thinking") == nullptr)
    request.chat.template_kwargs.set("enable_thinking", *options.thinks);
  if (fields.take("thread") != nullptr)
    return Error{ErrorCode::kUnsupported,
                 "thread: nothing is stored here; send the whole conversation without it"};
  TRY(fields.refuse({"mcp_servers", "container", "output_format"}));
  fields.ignore({"context_management", "betas", "anthropic_version", "anthropic_beta",
                 "inference_geo", "speed", "cache_control", "diagnostics"});
  request.unread = fields.unread();
  request.unread.insert(request.unread.end(), tools.left_out().begin(), tools.left_out().end());
  options.schema.tell(fields);
  return request;
}

}  // namespace pewter::server
