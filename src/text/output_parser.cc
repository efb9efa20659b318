#include "text/output_parser.h"

#include "base/blanks.h"

#include <algorithm>

namespace pewter {
namespace {

constexpr std::string_view kOpen = "<think>", kClose = "</think>";
constexpr std::string_view kNewlines = "\r\n";
constexpr std::string_view kCall = "<tool_call>", kFunction = "<function=";
// Each reads what is left of the text once more.
constexpr int kMostLateTrials = 16;

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

// Drops calls from the index `border` on that say again what one before it has said, each for one
// of them, and counts anew.
void drop_repeated(std::vector<ToolCallDelta>& deltas, int64_t border) {
  std::vector<std::pair<std::string, std::string>> calls;  // name and arguments
  for (const ToolCallDelta& delta : deltas) {
    if (delta.begins) calls.emplace_back(delta.name, "");
    calls.at(static_cast<size_t>(delta.index)).second += delta.arguments;
  }
  const auto first_late = static_cast<size_t>(std::min<int64_t>(border, std::ssize(calls)));
  std::vector<std::pair<std::string, std::string>> rehearsed(
      calls.begin(), calls.begin() + static_cast<ptrdiff_t>(first_late));
  std::vector<int64_t> index_of;  // of each call among those that stay; -1: dropped
  int64_t kept = 0;
  for (size_t i = 0; i < calls.size(); ++i) {
    const auto twin = i < first_late ? rehearsed.end() : std::ranges::find(rehearsed, calls[i]);
    index_of.push_back(twin == rehearsed.end() ? kept++ : -1);
    if (twin != rehearsed.end()) rehearsed.erase(twin);
  }
  std::erase_if(deltas, [&](ToolCallDelta& delta) {
    delta.index = index_of[static_cast<size_t>(delta.index)];
    return delta.index < 0;
  });
}

}  // namespace

void OutputDelta::append(const OutputDelta& more) {
  reasoning += more.reasoning;
  answer += more.answer;
  calls.insert(calls.end(), more.calls.begin(), more.calls.end());
}

OutputDelta OutputParser::push(std::string_view text) {
  OutputDelta delta;
  pending_ += text;
  while (step(Ending::kNone, delta)) {
  }
  return delta;
}

bool OutputParser::step(Ending ending, OutputDelta& delta) {
  switch (state_) {
    case State::kReasoningStart:
      return skip_lead(kOpen, State::kReasoning);
    case State::kReasoning:
      return trial_.empty() ? continue_reasoning(ending, delta) : continue_trial(ending, delta);
    case State::kAnswerStart:
      return skip_lead(kClose, State::kAnswer);
    case State::kAnswer:
      answer_.push(pending_, delta.answer, delta.calls);
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

size_t OutputParser::emit_reasoning(size_t size, OutputDelta& delta) {
  const std::string_view text = std::string_view(pending_).substr(0, size);
  size_t ready = 0;
  if (size > blanks_) {
    const size_t last = text.substr(blanks_).find_last_not_of(kBlankBytes);
    if (last != std::string_view::npos) ready = blanks_ + last + 1;
  }
  blanks_ = size - ready;
  if (ready == 0) return 0;
  delta.reasoning += text.substr(0, ready);
  pending_.erase(0, ready);
  no_calls_before_ -= std::min(no_calls_before_, ready);
  has_reasoning_ = true;
  return ready;
}

size_t OutputParser::find_calls(size_t limit) const {
  if (!tools_ || late_trials_ >= kMostLateTrials) return std::string::npos;
  for (size_t at = std::max(no_calls_before_, blanks_); (at = pending_.find('<', at)) < limit;
       ++at) {
    const std::string_view rest = std::string_view(pending_).substr(at);
    const bool begins_line = at == 0 ? !has_reasoning_ : pending_[at - 1] == '\n';
    if (rest.starts_with(kCall) || (begins_line && rest.starts_with(kFunction))) return at;
  }
  return std::string::npos;
}

bool OutputParser::continue_reasoning(Ending ending, OutputDelta& delta) {
  const size_t close = pending_.find(kClose, blanks_);
  if (size_t calls = find_calls(std::min(close, pending_.size())); calls != std::string::npos) {
    calls -= emit_reasoning(calls, delta);
    trial_.push_back(
        {.parser = AnswerParser(tools_, /*parallel=*/true), .begin = calls, .read = calls});
    return true;
  }
  if (close != std::string::npos) {
    const size_t emitted = emit_reasoning(close, delta);
    pending_.erase(0, close - emitted + kClose.size());
    state_ = State::kAnswerStart;
    return true;
  }
  // Blanks are given out once something follows them; a piece of a tag, once it is none.
  size_t tail = ending == Ending::kNone ? partial_tag(pending_, kClose) : 0;
  if (tools_ && ending == Ending::kNone)
    tail = std::max({tail, partial_tag(pending_, kCall), partial_tag(pending_, kFunction)});
  emit_reasoning(pending_.size() - tail, delta);
  return false;
}

// Byte by byte, so that it fails at the same place however the text is cut.
bool OutputParser::continue_trial(Ending ending, OutputDelta& delta) {
  Trial& trial = trial_.front();
  bool open = true;
  while (open && trial.read < pending_.size()) {
    trial.parser.push(std::string_view(pending_).substr(trial.read++, 1), trial.content,
                      trial.calls);
    open = may_pass(trial);
    if (!trial.before_close && trimmed(trial.content) == kClose)
      trial.before_close = trial.parser.calls_completed();
  }
  if (open && ending == Ending::kNone) return false;
  if (open) {
    trial.parser.finish(ending, trial.content, trial.calls);
    if (may_pass(trial) && has_passed(trial)) {
      promote(trial, delta);
      return false;
    }
    ++late_trials_;
  }
  // It was talk about calls. None of those that were whole would fare better.
  no_calls_before_ = trial.begin + std::max<size_t>(trial.parser.block_end(), 1);
  trial_.clear();
  return true;
}

bool OutputParser::may_pass(Trial& trial) const {
  for (; trial.declared < trial.calls.size(); ++trial.declared) {
    const ToolCallDelta& call = trial.calls[trial.declared];
    if (call.begins && !tools_->declares(call.name)) return false;
  }
  return kClose.starts_with(trimmed(trial.content));
}

bool OutputParser::has_passed(const Trial& trial) const {
  const std::string_view content = trimmed(trial.content);
  return trial.parser.calls_completed() > 0 && !trial.parser.has_unfinished_call() &&
         (content.empty() || content == kClose);
}

void OutputParser::promote(Trial& trial, OutputDelta& delta) {
  drop_repeated(trial.calls, trial.before_close.value_or(INT64_MAX));
  for (ToolCallDelta& call : trial.calls)
    if (parallel_calls_ || call.index == 0) delta.calls.push_back(std::move(call));
  trial_.clear();
  pending_.clear();
  promoted_ = true;
  state_ = State::kAnswer;
}

OutputDelta OutputParser::finish(Ending ending) {
  OutputDelta delta;
  while (step(ending, delta)) {
  }
  if (in_reasoning()) {
    emit_reasoning(pending_.size(), delta);
  } else {
    answer_.push(pending_, delta.answer, delta.calls);
    answer_.finish(ending, delta.answer, delta.calls);
  }
  pending_.clear();
  const bool is_cut = ending == Ending::kLength;
  const bool calls =
      promoted_ || (answer_.calls_completed() > 0 && (!is_cut || answer_.ends_with_call()));
  if (calls)
    finish_reason_ = is_named_ ? "stop" : "tool_calls";
  else
    finish_reason_ = is_cut ? "length" : "stop";
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
