#include "server/responses/responses_format.h"

#include <ctime>

#include "server/answer/json_pieces.h"
#include "server/answer/part_stream.h"
#include "server/sse.h"

namespace pewter::server {
namespace {

using Kind = MessagePart::Kind;

std::string quoted(std::string_view text) {
  std::string out;
  append_json_string(out, text);
  return out;
}

void append_tokens(std::string& out, const Usage& usage) {
  out += str_cat(
      "{\"input_tokens\":", usage.prompt_tokens,
      ",\"input_tokens_details\":{\"cached_tokens\":0},\"output_tokens\":", usage.completion_tokens,
      ",\"output_tokens_details\":{\"reasoning_tokens\":", usage.reasoning_tokens,
      "},\"total_tokens\":", usage.prompt_tokens + usage.completion_tokens, "}");
}

// The part inside an item, which is all of it: items of this server have one.
std::string content_part(Kind kind, std::string_view text) {
  return kind == Kind::kReasoning
             ? str_cat("{\"type\":\"reasoning_text\",\"text\":", quoted(text), "}")
             : str_cat("{\"type\":\"output_text\",\"text\":", quoted(text),
                       ",\"annotations\":[],\"logprobs\":[]}");
}

class ResponsesFormat final : public ResponseFormat, private PartStream {
 public:
  ResponsesFormat(std::shared_ptr<const ServedModel> model, const Json& echo)
      : model_(std::move(model)), unique_(response_id("")), echo_(echo.dump()) {
    head_ =
        str_cat("{\"id\":\"resp_", unique_, "\",\"object\":\"response\",\"created_at\":",
                static_cast<int64_t>(std::time(nullptr)), ",\"model\":", quoted(model_->name()));
    // {"a":1} as ,"a":1
    if (echo_.size() > 2) head_ += "," + echo_.substr(1, echo_.size() - 2);
  }

  Wants wants() const override { return {}; }
  void begin(const Choice& choice, const Usage* usage, std::string& out) override;
  void token(const Choice& choice, const TokenRecord&, const OutputDelta&, const Usage*,
             std::string& out) override {
    advance(choice.message, /*ended=*/false, out);
  }
  void end(const Choice& choice, const OutputDelta&, const Usage* usage, const std::string& tail,
           std::string& out) override;
  void usage(const Usage&, const std::string&, std::string&) override {}
  void finish(std::string&) override {}
  void fail(const Error& error, std::string& out) override;
  std::string whole(const std::deque<Choice>& choices, const Usage& usage,
                    const std::string& tail) override;

 private:
  void open(const ChatMessage& message, size_t index, std::string& out) override;
  void grow(const ChatMessage& message, size_t index, std::string_view text,
            std::string& out) override;
  void close(const ChatMessage& message, size_t index, std::string& out) override;

  // An event; `members` begin with a comma.
  void tell(std::string_view type, const std::string& members, std::string& out);
  std::string item_id(const MessagePart& part, size_t index) const;
  // The item of a part as it stands; `status`: in_progress shows none of its text.
  std::string item(const ChatMessage& message, size_t index, std::string_view status) const;
  // ,"item_id":…,"output_index":…
  std::string place(const ChatMessage& message, size_t index) const;
  std::string_view status_of(const ChatMessage& message, size_t index) const;
  std::string response(std::string_view status, std::string_view details, const std::string& output,
                       const Usage* usage, const Error* error) const;
  // A response that has ended.
  std::string ended_response(const Choice& choice, const Usage& usage) const;

  const std::shared_ptr<const ServedModel> model_;
  const std::string unique_, echo_;
  std::string head_;  // a response up to what changes
  int64_t sequence_ = 0;
  bool is_cut_ = false;  // the length has ended the answer, and its last item is not whole
};

std::string ResponsesFormat::response(std::string_view status, std::string_view details,
                                      const std::string& output, const Usage* usage,
                                      const Error* error) const {
  std::string text = head_;
  text += str_cat(",\"status\":\"", status, "\",\"incomplete_details\":", details, ",\"error\":");
  text += error == nullptr
              ? "null"
              : str_cat("{\"code\":\"server_error\",\"message\":", quoted(error->message), "}");
  text += str_cat(",\"output\":[", output, "],\"usage\":");
  if (usage == nullptr)
    text += "null";
  else
    append_tokens(text, *usage);
  text += '}';
  return text;
}

std::string ResponsesFormat::ended_response(const Choice& choice, const Usage& usage) const {
  std::string output;
  for (size_t i = 0; i < choice.message.parts.size(); ++i) {
    if (i > 0) output += ',';
    output += item(choice.message, i, status_of(choice.message, i));
  }
  return is_cut_
             ? response("incomplete", "{\"reason\":\"max_output_tokens\"}", output, &usage, nullptr)
             : response("completed", "null", output, &usage, nullptr);
}

std::string ResponsesFormat::item_id(const MessagePart& part, size_t index) const {
  const std::string_view prefix = part.kind == Kind::kReasoning ? "rs_"
                                  : part.kind == Kind::kContent ? "msg_"
                                                                : "fc_";
  return str_cat(prefix, unique_, "_", index);
}

std::string_view ResponsesFormat::status_of(const ChatMessage& message, size_t index) const {
  return is_cut_ && index + 1 == message.parts.size() ? "incomplete" : "completed";
}

std::string ResponsesFormat::item(const ChatMessage& message, size_t index,
                                  std::string_view status) const {
  const MessagePart& part = message.parts[index];
  const bool is_begun = status == "in_progress";
  const std::string_view text = is_begun ? std::string_view() : message.text_of(part);
  std::string out = str_cat("{\"id\":\"", item_id(part, index), "\",\"status\":\"", status, "\",");
  if (part.kind == Kind::kCall) {
    const ToolCall& call = message.calls[part.begin];
    return out += str_cat("\"type\":\"function_call\",\"call_id\":", quoted(call.id),
                          ",\"name\":", quoted(call.name), ",\"arguments\":", quoted(text), "}");
  }
  out += part.kind == Kind::kReasoning
             ? "\"type\":\"reasoning\",\"summary\":[],\"content\":["
             : "\"type\":\"message\",\"role\":\"assistant\",\"content\":[";
  if (!is_begun) out += content_part(part.kind, text);
  out += "]}";
  return out;
}

std::string ResponsesFormat::place(const ChatMessage& message, size_t index) const {
  return str_cat(",\"item_id\":\"", item_id(message.parts[index], index),
                 "\",\"output_index\":", index);
}

void ResponsesFormat::tell(std::string_view type, const std::string& members, std::string& out) {
  append_sse_event(
      out, type,
      str_cat("{\"type\":\"", type, "\",\"sequence_number\":", sequence_++, members, "}"));
}

void ResponsesFormat::begin(const Choice&, const Usage*, std::string& out) {
  const std::string members =
      ",\"response\":" + response("in_progress", "null", "", nullptr, nullptr);
  tell("response.created", members, out);
  tell("response.in_progress", members, out);
}

void ResponsesFormat::open(const ChatMessage& message, size_t index, std::string& out) {
  const Kind kind = message.parts[index].kind;
  tell("response.output_item.added",
       str_cat(",\"output_index\":", index, ",\"item\":", item(message, index, "in_progress")),
       out);
  if (kind != Kind::kCall)
    tell("response.content_part.added",
         str_cat(place(message, index), ",\"content_index\":0,\"part\":", content_part(kind, "")),
         out);
}

void ResponsesFormat::grow(const ChatMessage& message, size_t index, std::string_view text,
                           std::string& out) {
  const std::string members = str_cat(place(message, index), ",\"delta\":", quoted(text));
  switch (message.parts[index].kind) {
    case Kind::kReasoning:
      return tell("response.reasoning_text.delta", members + ",\"content_index\":0", out);
    case Kind::kContent:
      return tell("response.output_text.delta", members + ",\"content_index\":0,\"logprobs\":[]",
                  out);
    case Kind::kCall:
      return tell("response.function_call_arguments.delta", members, out);
  }
}

void ResponsesFormat::close(const ChatMessage& message, size_t index, std::string& out) {
  const MessagePart& part = message.parts[index];
  const std::string at = place(message, index), text = quoted(message.text_of(part));
  if (part.kind == Kind::kCall) {
    tell("response.function_call_arguments.done",
         str_cat(at, ",\"name\":", quoted(message.calls[part.begin].name), ",\"arguments\":", text),
         out);
  } else {
    if (part.kind == Kind::kReasoning)
      tell("response.reasoning_text.done", str_cat(at, ",\"content_index\":0,\"text\":", text),
           out);
    else
      tell("response.output_text.done",
           str_cat(at, ",\"content_index\":0,\"text\":", text, ",\"logprobs\":[]"), out);
    tell("response.content_part.done",
         str_cat(at,
                 ",\"content_index\":0,\"part\":", content_part(part.kind, message.text_of(part))),
         out);
  }
  tell("response.output_item.done",
       str_cat(",\"output_index\":", index,
               ",\"item\":", item(message, index, status_of(message, index))),
       out);
}

void ResponsesFormat::end(const Choice& choice, const OutputDelta&, const Usage* usage,
                          const std::string&, std::string& out) {
  is_cut_ = choice.finish_reason == "length";
  advance(choice.message, /*ended=*/true, out);
  tell(is_cut_ ? "response.incomplete" : "response.completed",
       ",\"response\":" + ended_response(choice, *usage), out);
}

void ResponsesFormat::fail(const Error& error, std::string& out) {
  tell("response.failed", ",\"response\":" + response("failed", "null", "", nullptr, &error), out);
}

std::string ResponsesFormat::whole(const std::deque<Choice>& choices, const Usage& usage,
                                   const std::string&) {
  is_cut_ = choices.front().finish_reason == "length";
  return ended_response(choices.front(), usage);
}

}  // namespace

std::unique_ptr<ResponseFormat> make_responses_format(std::shared_ptr<const ServedModel> model,
                                                      const Json& echo) {
  return std::make_unique<ResponsesFormat>(std::move(model), echo);
}

}  // namespace pewter::server
