#include "text/answer_parser.h"

#include <algorithm>

namespace pewter {
namespace {

constexpr std::string_view kCallTag = "<tool_call>";

}  // namespace

void AnswerParser::finish(Ending ending, std::string& content, std::vector<ToolCallDelta>& calls) {
  advance(ending, content, calls);
  if (is_done()) return pending_.clear();
  if (in_call_) {
    // A call that was cut off; what is undecided of it is no part of its arguments yet.
    if (calls_.is_unfinished()) calls_.cut(calls);
    pending_.clear();
    return;
  }
  if (!looks_for_calls_) return;
  const size_t solid = pending_.find_first_not_of(kBlankBytes);
  if (solid != std::string::npos && ending == Ending::kLength && add_cut_call(calls)) return;
  // Blanks behind a call, or instead of an answer, are nobody's.
  if (solid == std::string::npos && (after_call_ || !has_content_)) pending_.clear();
  emit(pending_.size(), content);
}

void AnswerParser::advance(Ending ending, std::string& content, std::vector<ToolCallDelta>& calls) {
  if (!looks_for_calls_) {
    emit(pending_.size(), content);
    return;
  }
  while (!is_done()) {
    if (!in_call_) {
      if (read_content(ending, content, calls) == Step::kNeedMore) return;
      continue;
    }
    const size_t before = pending_.size();
    const ToolCallParser::Step step = calls_.step(pending_, ending, calls);
    consumed_ += before - pending_.size();
    if (step == ToolCallParser::Step::kNeedMore) return;
    if (step == ToolCallParser::Step::kLeft) {
      in_call_ = false;
      blanks_ = 0;
      after_call_ = true;
      block_end_ = consumed_;
    }
  }
  pending_.clear();
}

AnswerParser::Step AnswerParser::read_content(Ending ending, std::string& content,
                                              std::vector<ToolCallDelta>& calls) {
  size_t at = blanks_;
  TagKind opening = TagKind::kOther;
  for (; (at = std::min(pending_.find('<', at), pending_.size())) < pending_.size(); ++at) {
    opening = opening_at(at, ending);
    if (opening != TagKind::kOther) break;
  }
  // Blanks before the place may belong to a call.
  const size_t last =
      std::string_view(pending_).substr(blanks_, at - blanks_).find_last_not_of(kBlankBytes);
  const size_t solid = last == std::string_view::npos ? 0 : blanks_ + last + 1;
  emit(solid, content);
  blanks_ = at - solid;
  if (object_at_ != std::string::npos) object_at_ -= solid;
  at -= solid;
  if (at == pending_.size() || opening == TagKind::kUnsure) return Step::kNeedMore;
  enter_call(at, calls);
  return Step::kAgain;
}

TagKind AnswerParser::opening_at(size_t at, Ending ending) {
  const Tag tag = tag_at(pending_, at, ending);
  if (tag.kind == TagKind::kUnsure) return TagKind::kUnsure;
  if (tag.kind == TagKind::kFunction) {
    // Without its <tool_call>, a call must stand at the beginning of a line.
    const bool line = at == 0 ? !has_content_ || after_call_ : pending_[at - 1] == '\n';
    return line ? calls_.judge(pending_, at, /*must_be_declared=*/true, ending) : TagKind::kOther;
  }
  if (tag.kind != TagKind::kCall) return TagKind::kOther;
  const Tag next = tag_behind_blanks(pending_, tag.end, ending);
  if (next.kind == TagKind::kUnsure) return TagKind::kUnsure;
  if (next.kind == TagKind::kFunction) {
    const TagKind kind = calls_.judge(pending_, next.begin, /*must_be_declared=*/false, ending);
    return kind == TagKind::kFunction ? TagKind::kCall : kind;
  }
  if (next.kind == TagKind::kOther && pending_[next.begin] == '{')
    return json_at(next.begin, ending);
  return TagKind::kOther;
}

TagKind AnswerParser::json_at(size_t at, Ending ending) {
  if (object_at_ != at) {
    object_at_ = at;
    object_ = {};
  }
  const std::string_view text = std::string_view(pending_).substr(at);
  switch (object_.scan(text)) {
    case JsonObjectScanner::Found::kUnsure:
      if (ending != Ending::kStop) return TagKind::kUnsure;
      break;
    case JsonObjectScanner::Found::kComplete:
      if (parse_json_call(text.substr(0, object_.size()))) return TagKind::kCall;
      break;
    case JsonObjectScanner::Found::kBroken:
      break;
  }
  object_at_ = std::string::npos;
  return TagKind::kOther;
}

void AnswerParser::enter_call(size_t at, std::vector<ToolCallDelta>& calls) {
  if (object_at_ != std::string::npos) {
    const auto call =
        parse_json_call(std::string_view(pending_).substr(object_at_, object_.size()));
    drop(object_at_ + object_.size());
    object_at_ = std::string::npos;
    if (call) calls_.add(call->name, call->arguments, calls);  // json_at has seen that it is one
    calls_.enter_block();
  } else {
    drop(pending_.find("<function=", at));
    const size_t before = pending_.size();
    calls_.open(pending_, calls);
    consumed_ += before - pending_.size();
  }
  in_call_ = true;
}

// What is held back at an end by length, if it is the beginning of a call that names its function.
bool AnswerParser::add_cut_call(std::vector<ToolCallDelta>& calls) {
  const size_t solid = pending_.find_first_not_of(kBlankBytes);
  std::string_view rest = std::string_view(pending_).substr(solid);
  if (rest.starts_with(kCallTag)) rest.remove_prefix(kCallTag.size());
  const Tag tag = tag_behind_blanks(rest, 0, Ending::kLength);
  if (tag.kind == TagKind::kFunction) {
    if (!calls_.declares(tag.name)) return false;
    calls_.add_unfinished(tag.name, "{", calls);
  } else if (object_at_ != std::string::npos) {
    const auto call = parse_cut_json_call(std::string_view(pending_).substr(object_at_));
    if (!call || !calls_.declares(call->name)) return false;
    calls_.add_unfinished(call->name, call->arguments, calls);
  } else {
    return false;
  }
  in_call_ = true;
  pending_.clear();
  return true;
}

void AnswerParser::emit(size_t size, std::string& content) {
  std::string_view text = std::string_view(pending_).substr(0, size);
  if (text.empty()) return;
  // Behind a call that opens an answer, its newlines go with it.
  if (after_call_ && !has_content_)
    text.remove_prefix(std::min(text.find_first_not_of(kBlankBytes), text.size()));
  content += text;
  has_content_ = true;
  after_call_ = false;
  drop(size);
}

void AnswerParser::drop(size_t size) {
  pending_.erase(0, size);
  blanks_ = 0;
  consumed_ += size;
}

}  // namespace pewter
