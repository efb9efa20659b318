#include "text/output_parser.h"

#include <algorithm>

namespace pewter {
namespace {

constexpr std::string_view kOpen = "<think>", kClose = "</think>";
constexpr std::string_view kNewlines = "\r\n", kBlanks = " \t\r\n";

// Bytes at the end of text that are a beginning of tag, but not all of it.
size_t partial_tag(std::string_view text, std::string_view tag) {
  for (size_t n = std::min(text.size(), tag.size() - 1); n > 0; --n)
    if (text.substr(text.size() - n) == tag.substr(0, n)) return n;
  return 0;
}

// text is a proper beginning of tag.
bool begins(std::string_view text, std::string_view tag) {
  return text.size() < tag.size() && tag.starts_with(text);
}

}  // namespace

OutputDelta OutputParser::push(std::string_view text) {
  OutputDelta delta;
  pending_ += text;
  while (step(delta)) {
  }
  return delta;
}

bool OutputParser::step(OutputDelta& delta) {
  switch (state_) {
    case State::kReasoningStart:
      return skip_lead(kOpen, State::kReasoning);
    case State::kReasoning:
      return continue_reasoning(delta);
    case State::kAnswerStart:
      return skip_lead(kClose, State::kAnswer);
    case State::kAnswer:
      delta.answer += pending_;
      pending_.clear();
      return false;
  }
  return false;
}

// Drops newlines, one tag, and the newlines after it.
bool OutputParser::skip_lead(std::string_view tag, State next) {
  pending_.erase(0, std::min(pending_.find_first_not_of(kNewlines), pending_.size()));
  if (pending_.empty()) return false;
  if (!tag_skipped_) {
    if (begins(pending_, tag)) return false;
    if (pending_.starts_with(tag)) {
      pending_.erase(0, tag.size());
      tag_skipped_ = true;
      return true;
    }
  }
  state_ = next;
  tag_skipped_ = false;
  return true;
}

bool OutputParser::continue_reasoning(OutputDelta& delta) {
  const size_t close = pending_.find(kClose);
  if (close != std::string::npos) {
    const std::string_view rest = std::string_view(pending_).substr(0, close);
    delta.reasoning += rest.substr(0, rest.find_last_not_of(kBlanks) + 1);
    pending_.erase(0, close + kClose.size());
    state_ = State::kAnswerStart;
    return true;
  }
  // Blanks are given out once something follows them; a piece of a tag, once it is none.
  const size_t tail = partial_tag(pending_, kClose);
  const std::string_view body = std::string_view(pending_).substr(0, pending_.size() - tail);
  const size_t ready = body.find_last_not_of(kBlanks) + 1;
  delta.reasoning += body.substr(0, ready);
  pending_.erase(0, ready);
  return false;
}

OutputDelta OutputParser::finish() {
  OutputDelta delta;
  if (in_reasoning()) {
    delta.reasoning = pending_.substr(0, pending_.find_last_not_of(kBlanks) + 1);
  } else {
    delta.answer = pending_;
  }
  pending_.clear();
  return delta;
}

bool opens_reasoning(std::string_view prompt, std::span<const ByteRange> foreign) {
  const auto last_authored = [&](std::string_view tag) -> ptrdiff_t {
    for (size_t at = prompt.rfind(tag); at != std::string_view::npos;
         at = at == 0 ? std::string_view::npos : prompt.rfind(tag, at - 1)) {
      const bool touched = std::any_of(foreign.begin(), foreign.end(), [&](const ByteRange& range) {
        return range.begin < at + tag.size() && at < range.end;
      });
      if (!touched) return static_cast<ptrdiff_t>(at);
    }
    return -1;
  };
  return last_authored(kOpen) > last_authored(kClose);
}

}  // namespace pewter
