// Separates what a model generates into reasoning, content and tool calls, as it streams. Qwen3.5's
// template opens the <think> block in the prompt, so the model's text begins inside it; whether it
// does is read off the rendered prompt, never off a request's wish.
//
//   reasoning   leading newlines, a <think> at the very start and trailing blanks are dropped
//   </think>    the first one ends it, however it is spread over the pieces
//   answer      leading newlines and one stray </think> at its very start are dropped;
//               after that, these tags are ordinary text
//   calls       in the answer, answer_parser.h. In reasoning that was never closed they count if
//               they are whole, name declared functions, and nothing follows them but blanks and
//               one </think>; they are held back until the end has shown that. Said once before
//               that
//               </think> and again after it, a call counts once
//
// Whatever could still become markup is held back until more text or finish() decides. How the text
// is cut makes no difference to what comes out.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "text/answer_parser.h"
#include "text/byte_range.h"

namespace pewter {

struct OutputDelta {
  std::string reasoning, answer;
  std::vector<ToolCallDelta> calls;

  bool empty() const { return reasoning.empty() && answer.empty() && calls.empty(); }
  void append(const OutputDelta& more);
};

enum class ToolChoice : uint8_t { kNone, kAuto, kRequired, kNamed };

struct OutputParserOptions {
  bool in_reasoning = false;
  std::shared_ptr<const ToolSchemas> tools = nullptr;  // null: calls are text
  ToolChoice tool_choice = ToolChoice::kAuto;          // kNone: calls are text
  bool parallel_calls = true;                          // otherwise the first one is all
};

class OutputParser {
 public:
  explicit OutputParser(const OutputParserOptions& options)
      : state_(options.in_reasoning ? State::kReasoningStart : State::kAnswer),
        tools_(options.tool_choice == ToolChoice::kNone ? nullptr : options.tools),
        is_named_(options.tool_choice == ToolChoice::kNamed),
        parallel_calls_(options.parallel_calls),
        answer_(tools_, options.parallel_calls) {}
  // Reasoning and answer only. Without reasoning every byte is answer, tags included.
  explicit OutputParser(bool in_reasoning)
      : OutputParser(OutputParserOptions{.in_reasoning = in_reasoning}) {}

  OutputDelta push(std::string_view text);
  // What was held back, when the stream has ended. Blank reasoning comes out as "".
  OutputDelta finish(Ending ending = Ending::kStop);
  // True while no </think> has been seen: a token pushed now counts as reasoning.
  bool in_reasoning() const {
    return state_ == State::kReasoningStart || state_ == State::kReasoning;
  }
  // The calls that are wanted are there; more text changes nothing.
  bool is_done() const { return answer_.is_done(); }
  // After finish(): "stop", "length", or "tool_calls" when there is a whole call and nothing was
  // cut off behind it. A named choice is told as "stop": its client knows.
  std::string_view finish_reason() const { return finish_reason_; }

 private:
  enum class State { kReasoningStart, kReasoning, kAnswerStart, kAnswer };
  // Calls inside open reasoning, on approval: the text from `begin` of what is pending is parsed
  // as an answer, aside.
  struct Trial {
    AnswerParser parser;
    size_t begin, read;  // in pending_
    std::string content = {};
    std::vector<ToolCallDelta> calls = {};
    size_t declared = 0;                       // so many of the calls name declared functions
    std::optional<int64_t> before_close = {};  // calls begun when a </think> came
  };

  // One advance through pending_; false when more text is needed.
  bool step(Ending ending, OutputDelta& delta);
  bool skip_lead(std::string_view tag, State next);
  bool continue_reasoning(Ending ending, OutputDelta& delta);
  // Where calls may begin, before `limit`; npos: nowhere.
  size_t find_calls(size_t limit) const;
  bool continue_trial(Ending ending, OutputDelta& delta);
  bool may_pass(Trial& trial) const;
  bool has_passed(const Trial& trial) const;
  void promote(Trial& trial, OutputDelta& delta);
  // Gives out the first bytes of what is pending, less blanks at their end.
  size_t emit_reasoning(size_t size, OutputDelta& delta);

  State state_;
  bool tag_skipped_ = false;  // by skip_lead, in this state
  std::string pending_;       // not yet given out
  size_t blanks_ = 0;         // in reasoning: pending_ begins with at least so many
  std::shared_ptr<const ToolSchemas> tools_;
  bool is_named_, parallel_calls_;
  AnswerParser answer_;
  std::vector<Trial> trial_;    // at most one
  size_t no_calls_before_ = 0;  // in pending_
  int late_trials_ = 0;         // that only the end of the text has ended
  bool has_reasoning_ = false, promoted_ = false;
  std::string_view finish_reason_ = "stop";
};

// True when the prompt's last <think> is not closed. Tags in foreign ranges (a user who writes
// "<think>") do not count.
bool opens_reasoning(std::string_view prompt, std::span<const ByteRange> foreign);

}  // namespace pewter
