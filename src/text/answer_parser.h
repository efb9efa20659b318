// AnswerParser: what a model generates outside its reasoning, as it streams: content and tool
// calls, in both dialects. Text that could still become a call, and blanks that might stand before
// one, are held back.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "text/json_call.h"
#include "text/tool_call_parser.h"

namespace pewter {

class AnswerParser {
 public:
  // Without tools (null) all text is content, as it stands. parallel: more than one call counts;
  // otherwise whatever follows the first is dropped.
  AnswerParser(std::shared_ptr<const ToolSchemas> tools, bool parallel)
      : looks_for_calls_(tools != nullptr), parallel_(parallel), calls_(std::move(tools)) {}

  void push(std::string_view text, std::string& content, std::vector<ToolCallDelta>& calls) {
    pending_ += text;
    advance(Ending::kNone, content, calls);
  }
  // What was held back.
  void finish(Ending ending, std::string& content, std::vector<ToolCallDelta>& calls);

  int64_t calls_completed() const { return calls_.completed(); }
  bool has_unfinished_call() const { return calls_.is_unfinished(); }
  // Nothing but blanks came behind the last call.
  bool ends_with_call() const {
    return calls_.begun() > 0 && !calls_.is_unfinished() && (in_call_ || after_call_);
  }
  // No more than one call is wanted, and it is there.
  bool is_done() const { return !parallel_ && calls_.completed() > 0; }
  // Bytes of the input up to the end of the last whole block; 0: there was none.
  size_t block_end() const { return block_end_; }

 private:
  enum class Step : uint8_t { kAgain, kNeedMore };
  void advance(Ending ending, std::string& content, std::vector<ToolCallDelta>& calls);
  Step read_content(Ending ending, std::string& content, std::vector<ToolCallDelta>& calls);
  // What stands at `at`: kCall, kFunction (both begin a call), kOther or kUnsure.
  TagKind opening_at(size_t at, Ending ending);
  TagKind json_at(size_t at, Ending ending);
  void enter_call(size_t at, std::vector<ToolCallDelta>& calls);
  bool add_cut_call(std::vector<ToolCallDelta>& calls);
  void emit(size_t size, std::string& content);
  void drop(size_t size);

  bool looks_for_calls_, parallel_;
  ToolCallParser calls_;
  std::string pending_;
  size_t blanks_ = 0;  // outside calls: pending_ begins with at least so many
  size_t consumed_ = 0, block_end_ = 0;
  bool in_call_ = false, after_call_ = false, has_content_ = false;
  // The JSON object of the opening at the front of what is held back.
  JsonObjectScanner object_;
  size_t object_at_ = std::string::npos;
};

}  // namespace pewter
