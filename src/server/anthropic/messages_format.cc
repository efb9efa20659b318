#include "server/anthropic/messages_format.h"

#include "server/answer/json_pieces.h"
#include "server/answer/part_stream.h"
#include "server/sse.h"

namespace pewter::server {
namespace {

using Kind = MessagePart::Kind;

// Thinking is signed where it comes from a service that checks it. Nothing is checked here; but
// clients that find no signature do not send thinking back, and the prompt would miss it.
constexpr std::string_view kSignature = "unsigned";

// "call_…" of the chat API with Anthropic's prefix.
std::string block_id(const ToolCall& call) {
  return "toolu_" + call.id.substr(call.id.find('_') + 1);
}

// A call that was cut off is no JSON.
bool is_whole(const ToolCall& call) {
  const Result<Json> arguments = Json::parse(call.arguments);
  return arguments && arguments->is_object();
}

std::string_view stop_reason(const Choice& choice) {
  if (choice.finish_reason == "length") return "max_tokens";
  if (choice.stop_text) return "stop_sequence";
  return choice.message.calls.empty() ? "end_turn" : "tool_use";
}

void append_stop(std::string& out, const Choice& choice) {
  out += str_cat("\"stop_reason\":\"", stop_reason(choice), "\",\"stop_sequence\":");
  if (choice.stop_text)
    append_json_string(out, *choice.stop_text);
  else
    out += "null";
}

void append_tokens(std::string& out, const Usage& usage) {
  out += str_cat("\"usage\":{\"input_tokens\":", usage.prompt_tokens,
                 ",\"cache_creation_input_tokens\":0,\"cache_read_input_tokens\":0",
                 ",\"output_tokens\":", usage.completion_tokens, "}");
}

class MessagesFormat final : public ResponseFormat, private PartStream {
 public:
  explicit MessagesFormat(std::shared_ptr<const ServedModel> model)
      : model_(std::move(model)), id_(response_id("msg_")) {}

  Wants wants() const override { return {}; }
  void begin(const Choice& choice, const Usage* usage, std::string& out) override;
  void token(const Choice& choice, const TokenRecord&, const OutputDelta&, const Usage*,
             std::string& out) override {
    advance(choice.message, /*ended=*/false, out);
  }
  void end(const Choice& choice, const OutputDelta&, const Usage* usage, const std::string& tail,
           std::string& out) override;
  void usage(const Usage&, const std::string&, std::string&) override {}
  void finish(std::string& out) override {
    append_sse_event(out, "message_stop", "{\"type\":\"message_stop\"}");
  }
  void fail(const Error& error, std::string& out) override {
    append_sse_event(out, "error", error_event_body(error, ErrorForm::kAnthropic));
  }
  void ping(std::string& out) override { append_sse_event(out, "ping", "{\"type\":\"ping\"}"); }
  std::string whole(const std::deque<Choice>& choices, const Usage& usage,
                    const std::string& tail) override;

 private:
  void open(const ChatMessage& message, size_t index, std::string& out) override;
  void grow(const ChatMessage& message, size_t index, std::string_view text,
            std::string& out) override;
  void close(const ChatMessage& message, size_t index, std::string& out) override;
  static void delta(size_t index, std::string_view type, std::string_view field,
                    std::string_view text, std::string& out);
  // {"id":…,"type":"message","role":"assistant","model":…,"content":
  std::string head() const;

  const std::shared_ptr<const ServedModel> model_;
  const std::string id_;
};

std::string MessagesFormat::head() const {
  std::string text =
      str_cat("{\"id\":\"", id_, "\",\"type\":\"message\",\"role\":\"assistant\",\"model\":");
  append_json_string(text, model_->name());
  text += ",\"content\":";
  return text;
}

void MessagesFormat::begin(const Choice&, const Usage* usage, std::string& out) {
  std::string event = "{\"type\":\"message_start\",\"message\":" + head() +
                      "[],\"stop_reason\":null,\"stop_sequence\":null,";
  append_tokens(event, *usage);
  append_sse_event(out, "message_start", event + "}}");
}

void MessagesFormat::open(const ChatMessage& message, size_t index, std::string& out) {
  const MessagePart& part = message.parts[index];
  std::string event =
      str_cat("{\"type\":\"content_block_start\",\"index\":", index, ",\"content_block\":");
  if (part.kind == Kind::kReasoning) {
    event += "{\"type\":\"thinking\",\"thinking\":\"\",\"signature\":\"\"}}";
  } else if (part.kind == Kind::kContent) {
    event += "{\"type\":\"text\",\"text\":\"\"}}";
  } else {
    const ToolCall& call = message.calls[part.begin];
    event += str_cat("{\"type\":\"tool_use\",\"id\":\"", block_id(call), "\",\"name\":");
    append_json_string(event, call.name);
    event += ",\"input\":{}}}";
  }
  append_sse_event(out, "content_block_start", event);
}

void MessagesFormat::delta(size_t index, std::string_view type, std::string_view field,
                           std::string_view text, std::string& out) {
  std::string event = str_cat("{\"type\":\"content_block_delta\",\"index\":", index,
                              ",\"delta\":{\"type\":\"", type, "\",\"", field, "\":");
  append_json_string(event, text);
  append_sse_event(out, "content_block_delta", event + "}}");
}

void MessagesFormat::grow(const ChatMessage& message, size_t index, std::string_view text,
                          std::string& out) {
  switch (message.parts[index].kind) {
    case Kind::kReasoning:
      return delta(index, "thinking_delta", "thinking", text, out);
    case Kind::kContent:
      return delta(index, "text_delta", "text", text, out);
    case Kind::kCall:
      return delta(index, "input_json_delta", "partial_json", text, out);
  }
}

void MessagesFormat::close(const ChatMessage& message, size_t index, std::string& out) {
  if (message.parts[index].kind == Kind::kReasoning)
    delta(index, "signature_delta", "signature", kSignature, out);
  append_sse_event(out, "content_block_stop",
                   str_cat("{\"type\":\"content_block_stop\",\"index\":", index, "}"));
}

void MessagesFormat::end(const Choice& choice, const OutputDelta&, const Usage* usage,
                         const std::string&, std::string& out) {
  advance(choice.message, /*ended=*/true, out);
  std::string event = "{\"type\":\"message_delta\",\"delta\":{";
  append_stop(event, choice);
  event += "},";
  append_tokens(event, *usage);
  append_sse_event(out, "message_delta", event + "}");
}

std::string MessagesFormat::whole(const std::deque<Choice>& choices, const Usage& usage,
                                  const std::string&) {
  const Choice& choice = choices.front();
  const ChatMessage& message = choice.message;
  std::string body = head() + "[";
  for (const MessagePart& part : message.parts) {
    const bool is_call = part.kind == Kind::kCall;
    // Half a call cannot be told as an object; stop_reason says why it is missing.
    if (is_call && !is_whole(message.calls[part.begin])) continue;
    if (body.back() != '[') body += ',';
    if (is_call) {
      const ToolCall& call = message.calls[part.begin];
      body += str_cat("{\"type\":\"tool_use\",\"id\":\"", block_id(call), "\",\"name\":");
      append_json_string(body, call.name);
      body += str_cat(",\"input\":", call.arguments, "}");
    } else if (part.kind == Kind::kReasoning) {
      body += "{\"type\":\"thinking\",\"thinking\":";
      append_json_string(body, message.text_of(part));
      body += str_cat(",\"signature\":\"", kSignature, "\"}");
    } else {
      body += "{\"type\":\"text\",\"text\":";
      append_json_string(body, message.text_of(part));
      body += '}';
    }
  }
  body += "],";
  append_stop(body, choice);
  body += ',';
  append_tokens(body, usage);
  body += '}';
  return body;
}

}  // namespace

std::unique_ptr<ResponseFormat> make_messages_format(std::shared_ptr<const ServedModel> model) {
  return std::make_unique<MessagesFormat>(std::move(model));
}

}  // namespace pewter::server
