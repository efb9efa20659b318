// Separates what a model generates into reasoning and answer, as it streams. Qwen3.5's template
// opens the <think> block in the prompt, so the model's text begins inside it; whether it does is
// read off the rendered prompt, never off a request's wish.
//
//   reasoning   leading newlines, a <think> at the very start and trailing blanks are dropped
//   </think>    the first one ends it, however it is spread over the pieces
//   answer      leading newlines and one stray </think> at its very start are dropped;
//               after that, tags are ordinary text
//
// Whatever could still become markup is held back until more text or finish() decides.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "text/byte_range.h"

namespace pewter {

struct OutputDelta {
  std::string reasoning, answer;
};

class OutputParser {
 public:
  // Without reasoning every byte is answer, tags included.
  explicit OutputParser(bool in_reasoning)
      : state_(in_reasoning ? State::kReasoningStart : State::kAnswer) {}

  OutputDelta push(std::string_view text);
  // What was held back, when the stream has ended. Blank reasoning comes out as "".
  OutputDelta finish();
  // True while no </think> has been seen: a token pushed now counts as reasoning.
  bool in_reasoning() const {
    return state_ == State::kReasoningStart || state_ == State::kReasoning;
  }

 private:
  enum class State { kReasoningStart, kReasoning, kAnswerStart, kAnswer };
  // One advance through pending_; false when more text is needed.
  bool step(OutputDelta& delta);
  bool skip_lead(std::string_view tag, State next);
  bool continue_reasoning(OutputDelta& delta);

  State state_;
  bool tag_skipped_ = false;  // by skip_lead, in this state
  std::string pending_;       // not yet given out
};

// True when the prompt's last <think> is not closed. Tags in foreign ranges (a user who writes
// "<think>") do not count.
bool opens_reasoning(std::string_view prompt, std::span<const ByteRange> foreign);

}  // namespace pewter
