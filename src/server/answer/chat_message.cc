#include "server/answer/chat_message.h"

#include "server/answer/json_pieces.h"

namespace pewter::server {
namespace {

// Both names by default: clients of each kind find theirs.
void append_reasoning(std::string& out, const std::string& text, ReasoningField field) {
  if (field != ReasoningField::kReasoningContent) {
    out += "\"reasoning\":";
    append_json_string(out, text);
  }
  if (field == ReasoningField::kBoth) out += ',';
  if (field != ReasoningField::kReasoning) {
    out += "\"reasoning_content\":";
    append_json_string(out, text);
  }
}

// "id":…,"type":"function","function":{"name":…,  and the rest is the arguments'.
void append_call_head(std::string& out, const ToolCall& call) {
  out += "\"id\":";
  append_json_string(out, call.id);
  out += ",\"type\":\"function\",\"function\":{\"name\":";
  append_json_string(out, call.name);
  out += ',';
}

void append_arguments(std::string& out, const std::string& arguments) {
  out += "\"arguments\":";
  append_json_string(out, arguments);
  out += "}}";
}

// The text of this kind has grown by so many bytes, to `end`.
void extend(std::vector<MessagePart>& parts, MessagePart::Kind kind, size_t bytes, size_t end) {
  if (bytes == 0) return;
  if (parts.empty() || parts.back().kind != kind)
    parts.push_back({.kind = kind, .begin = end - bytes, .end = end});
  else
    parts.back().end = end;
}

}  // namespace

std::string_view ChatMessage::text_of(const MessagePart& part) const {
  if (part.kind == MessagePart::Kind::kCall) return calls.at(part.begin).arguments;
  const std::string& text = part.kind == MessagePart::Kind::kReasoning ? reasoning : content;
  return std::string_view(text).substr(part.begin, part.end - part.begin);
}

void ChatMessage::append(const OutputDelta& delta) {
  reasoning += delta.reasoning;
  content += delta.answer;
  extend(parts, MessagePart::Kind::kReasoning, delta.reasoning.size(), reasoning.size());
  extend(parts, MessagePart::Kind::kContent, delta.answer.size(), content.size());
  for (const ToolCallDelta& call : delta.calls) {
    if (call.begins) {
      calls.push_back({.id = response_id("call_"), .name = call.name, .arguments = {}});
      parts.push_back(
          {.kind = MessagePart::Kind::kCall, .begin = calls.size() - 1, .end = calls.size()});
    }
    calls.at(static_cast<size_t>(call.index)).arguments += call.arguments;
  }
}

void append_message(std::string& out, const ChatMessage& message, bool in_reasoning,
                    std::optional<ReasoningField> field) {
  out += "{\"role\":\"assistant\",\"content\":";
  if (message.content.empty() &&
      (in_reasoning || !message.reasoning.empty() || !message.calls.empty()))
    out += "null";
  else
    append_json_string(out, message.content);
  if (field && !message.reasoning.empty()) {
    out += ',';
    append_reasoning(out, message.reasoning, *field);
  }
  for (size_t i = 0; i < message.calls.size(); ++i) {
    out += i == 0 ? ",\"tool_calls\":[{" : ",{";
    append_call_head(out, message.calls[i]);
    append_arguments(out, message.calls[i].arguments);
  }
  if (!message.calls.empty()) out += ']';
  out += '}';
}

void append_delta(std::string& out, const OutputDelta& delta, const std::vector<ToolCall>& calls,
                  bool in_reasoning, std::optional<ReasoningField> field) {
  const bool reasoning = field && (!delta.reasoning.empty() ||
                                   (in_reasoning && delta.answer.empty() && delta.calls.empty()));
  const bool content =
      !delta.answer.empty() || (!in_reasoning && !reasoning && delta.calls.empty());
  out += '{';
  if (reasoning) append_reasoning(out, delta.reasoning, *field);
  if (reasoning && (content || !delta.calls.empty())) out += ',';
  if (content) {
    out += "\"content\":";
    append_json_string(out, delta.answer);
    if (!delta.calls.empty()) out += ',';
  }
  for (size_t i = 0; i < delta.calls.size(); ++i) {
    const ToolCallDelta& call = delta.calls[i];
    out += str_cat(i == 0 ? "\"tool_calls\":[" : ",", "{\"index\":", call.index, ",");
    if (call.begins)
      append_call_head(out, calls.at(static_cast<size_t>(call.index)));
    else
      out += "\"function\":{";
    append_arguments(out, call.arguments);
  }
  if (!delta.calls.empty()) out += ']';
  out += '}';
}

}  // namespace pewter::server
