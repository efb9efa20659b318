// An assistant's message and its deltas as the chat API spells them: content, reasoning, tool
// calls.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "text/output_parser.h"

namespace pewter::server {

enum class ReasoningField : uint8_t { kBoth, kReasoning, kReasoningContent };

struct ToolCall {
  std::string id;  // "call_" and 24 hex digits
  std::string name;
  std::string arguments;  // JSON text, unterminated when the call was cut off
};

// A stretch of a message in the order in which it was generated: bytes of its reasoning or of its
// content, or a call.
struct MessagePart {
  enum class Kind : uint8_t { kReasoning, kContent, kCall };
  Kind kind = Kind::kContent;
  size_t begin = 0, end = 0;  // a call: its index, and the one after it
};

struct ChatMessage {
  std::string reasoning, content;
  std::vector<ToolCall> calls;
  std::vector<MessagePart> parts;  // neighbours differ in kind, but for calls

  // Adds what a delta says; calls that begin in it get their ids.
  void append(const OutputDelta& delta);
  // Its text so far: arguments, if it is a call.
  std::string_view text_of(const MessagePart& part) const;
};

// The object of a message. Without a field reasoning is left out. Empty content is null beside
// reasoning or calls, and when `in_reasoning`: the answer never began.
void append_message(std::string& out, const ChatMessage& message, bool in_reasoning,
                    std::optional<ReasoningField> field);

// The object of a delta. `calls`: those so far, this delta's included. A token without text is an
// event all the same, on the side it belongs to: `in_reasoning` tells which.
void append_delta(std::string& out, const OutputDelta& delta, const std::vector<ToolCall>& calls,
                  bool in_reasoning, std::optional<ReasoningField> field);

}  // namespace pewter::server
