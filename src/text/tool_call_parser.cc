#include "text/tool_call_parser.h"

#include <algorithm>

#include "text/tool_value.h"

namespace pewter {
namespace {

// How often a message may go back to an earlier end of a value; each time the rest is read again.
constexpr int kMostRetreats = 16;
constexpr std::string_view kParameterTag = "<parameter=", kParameterEnd = "</parameter>";

std::string quoted(std::string_view text) {
  std::string out;
  append_json_string(out, text);
  return out;
}

}  // namespace

TagKind ToolCallParser::judge(std::string_view text, size_t at, bool must_be_declared,
                              Ending ending) const {
  const Tag tag = tag_at(text, at, ending);
  if (tag.kind != TagKind::kFunction)
    return tag.kind == TagKind::kUnsure ? TagKind::kUnsure : TagKind::kOther;
  const bool declared = tools_->declares(tag.name);
  if (must_be_declared && !declared) return TagKind::kOther;
  const Tag next = tag_behind_blanks(text, tag.end, ending);
  // A parameter's tag need not be whole: the call is told as early as it is certain.
  if (text.substr(next.begin).starts_with(kParameterTag)) return TagKind::kFunction;
  switch (next.kind) {
    case TagKind::kUnsure:
      return TagKind::kUnsure;
    case TagKind::kParameter:
    case TagKind::kFunctionEnd:
    case TagKind::kCallEnd:
      return TagKind::kFunction;
    case TagKind::kEnd:
      return declared ? TagKind::kFunction : TagKind::kOther;
    default:
      return TagKind::kOther;
  }
}

void ToolCallParser::open(std::string& text, std::vector<ToolCallDelta>& out) {
  const Tag tag = tag_at(text, 0, Ending::kNone);
  function_ = tag.name;
  text.erase(0, tag.end);
  seen_.clear();
  out.push_back({.index = begun_++, .begins = true, .name = function_, .arguments = {}});
  is_braced_ = false;
  state_ = State::kParameters;
}

void ToolCallParser::add(std::string_view name, std::string_view arguments,
                         std::vector<ToolCallDelta>& out) {
  add_unfinished(name, arguments, out);
  ++completed_;
}

void ToolCallParser::add_unfinished(std::string_view name, std::string_view arguments,
                                    std::vector<ToolCallDelta>& out) {
  out.push_back({.index = begun_++,
                 .begins = true,
                 .name = std::string(name),
                 .arguments = std::string(arguments)});
  is_braced_ = true;
}

ToolCallParser::Step ToolCallParser::step(std::string& text, Ending ending,
                                          std::vector<ToolCallDelta>& out) {
  switch (state_) {
    case State::kParameters:
      return between_parameters(text, ending, out);
    case State::kValue:
      return inside_value(text, ending, out);
    case State::kBlock:
      return inside_block(text, ending, out);
  }
  return Step::kLeft;
}

ToolCallParser::Step ToolCallParser::between_parameters(std::string& text, Ending ending,
                                                        std::vector<ToolCallDelta>& out) {
  const Tag tag = tag_behind_blanks(text, 0, ending);
  if (tag.kind == TagKind::kUnsure) return Step::kNeedMore;
  if (tag.kind == TagKind::kParameter) {
    open_parameter(text, tag, out);
    return Step::kAgain;
  }
  // Whatever else comes ends the call: its own tag, or those that should have come later.
  close_call(out);
  if (tag.kind == TagKind::kFunctionEnd) text.erase(0, tag.end);
  state_ = State::kBlock;
  return Step::kAgain;
}

ToolCallParser::Step ToolCallParser::inside_block(std::string& text, Ending ending,
                                                  std::vector<ToolCallDelta>& out) {
  const Tag tag = tag_behind_blanks(text, 0, ending);
  if (tag.kind == TagKind::kUnsure) return Step::kNeedMore;
  if (tag.kind == TagKind::kFunction) {
    switch (judge(text, tag.begin, /*must_be_declared=*/false, ending)) {
      case TagKind::kUnsure:
        return Step::kNeedMore;
      case TagKind::kFunction:
        text.erase(0, tag.begin);
        open(text, out);
        return Step::kAgain;
      default:
        return Step::kLeft;
    }
  }
  if (tag.kind == TagKind::kCallEnd) text.erase(0, tag.end);
  return Step::kLeft;
}

void ToolCallParser::open_parameter(std::string& text, const Tag& tag,
                                    std::vector<ToolCallDelta>& out) {
  const std::string name(tag.name);
  text.erase(0, tag.end);
  types_ = tools_->types(function_, name);
  skip_ = std::ranges::find(seen_, name) != seen_.end();
  if (!skip_) {
    append(str_cat(seen_.empty() ? "" : ", ", quoted(name), ": ", types_.is_text() ? "\"" : ""),
           out);
    seen_.push_back(name);
  }
  lead_pending_ = is_fresh_ = true;
  on_tag_line_ = false;
  depth_ = 0;
  scanned_ = 0;
  retreat_.reset();
  state_ = State::kValue;
}

bool ToolCallParser::at_line_start(std::string_view text, size_t at) const {
  return at == 0 ? is_fresh_ && !on_tag_line_ : text[at - 1] == '\n';
}

bool ToolCallParser::is_new(std::string_view parameter) const {
  return tools_->declares(function_, parameter) &&
         std::ranges::find(seen_, parameter) == seen_.end();
}

// Does </parameter> at `at` end the value, when `next` follows it?
bool ToolCallParser::ends_value(std::string_view text, size_t at, const Tag& next) const {
  switch (next.kind) {
    case TagKind::kFunctionEnd:
    case TagKind::kCallEnd:
    case TagKind::kEnd:
      return true;
    case TagKind::kParameter:
      return is_new(next.name) || on_tag_line_ || at_line_start(text, at);
    default:
      return false;
  }
}

// Nothing when the value does not end in what there is of the text; scanned_ says how far that is
// certain.
std::optional<ToolCallParser::Close> ToolCallParser::find_close(std::string_view text,
                                                                Ending ending) {
  while ((scanned_ = std::min(text.find('<', scanned_), text.size())) < text.size()) {
    const size_t at = scanned_;
    const Tag tag = tag_at(text, at, ending);
    size_t next = at + 1;
    if (tag.kind == TagKind::kUnsure) return std::nullopt;
    if (tag.kind == TagKind::kParameter) {
      // The tag before it was never closed.
      if (depth_ == 0 && at_line_start(text, at) && is_new(tag.name)) return Close{at, at};
    } else if (tag.kind == TagKind::kFunction) {
      ++depth_;
      next = tag.end;
    } else if (tag.kind == TagKind::kFunctionEnd && depth_ > 0) {
      --depth_;
    } else if (tag.kind == TagKind::kFunctionEnd) {
      const TagKind behind = tag_behind_blanks(text, tag.end, ending).kind;
      if (behind == TagKind::kUnsure) return std::nullopt;
      if (behind == TagKind::kCall || behind == TagKind::kCallEnd || behind == TagKind::kEnd)
        return Close{at, at};
    } else if (tag.kind == TagKind::kParameterEnd) {
      const Tag behind = tag_behind_blanks(text, tag.end, ending);
      if (behind.kind == TagKind::kUnsure) return std::nullopt;
      if (ends_value(text, at, behind)) {
        if (depth_ == 0) return Close{at, tag.end};
        if (!retreat_) retreat_ = at;
      }
    }
    scanned_ = next;
  }
  return std::nullopt;
}

ToolCallParser::Step ToolCallParser::inside_value(std::string& text, Ending ending,
                                                  std::vector<ToolCallDelta>& out) {
  if (lead_pending_) {
    if (text.empty() && ending == Ending::kNone) return Step::kNeedMore;
    on_tag_line_ = !text.starts_with('\n');
    if (!on_tag_line_) text.erase(0, 1);
    lead_pending_ = false;
  }
  if (const std::optional<Close> close = find_close(text, ending)) {
    close_value(text, *close, out);
    return Step::kAgain;
  }
  if (ending == Ending::kStop && retreat_ && retreats_ < kMostRetreats) {
    // A <function=…> in the value had no end of its own: the first place that could end the value
    // does.
    ++retreats_;
    close_value(text, {*retreat_, *retreat_ + kParameterEnd.size()}, out);
    return Step::kAgain;
  }
  // A newline may turn out to be the one before the end's tag.
  size_t ready = std::min(scanned_, retreat_.value_or(scanned_));
  if (ready > 0 && text[ready - 1] == '\n') --ready;
  if (types_.is_text() || skip_) emit_value(text, ready, out);
  return Step::kNeedMore;
}

void ToolCallParser::emit_value(std::string& text, size_t size, std::vector<ToolCallDelta>& out) {
  if (size == 0) return;
  if (!skip_) {
    const std::string piece = quoted(std::string_view(text).substr(0, size));
    append(std::string_view(piece).substr(1, piece.size() - 2), out);
  }
  text.erase(0, size);
  is_fresh_ = false;
  scanned_ -= size;
  if (retreat_) *retreat_ -= size;
}

void ToolCallParser::close_value(std::string& text, Close close, std::vector<ToolCallDelta>& out) {
  size_t size = close.value_end;
  if (size > 0 && text[size - 1] == '\n') --size;
  const std::string_view value = std::string_view(text).substr(0, size);
  if (!skip_) {
    if (types_.is_text()) {
      append(std::string_view(quoted(value)).substr(1), out);
    } else {
      append(tool_value(value, types_).dump({.spaced = true}), out);
    }
  }
  text.erase(0, close.next);
  state_ = State::kParameters;
}

void ToolCallParser::close_call(std::vector<ToolCallDelta>& out) {
  append("}", out);
  ++completed_;
}

void ToolCallParser::append(std::string_view arguments, std::vector<ToolCallDelta>& out) {
  if (arguments.empty() && is_braced_) return;
  if (out.empty() || out.back().index != begun_ - 1) out.push_back({.index = begun_ - 1});
  if (!is_braced_) out.back().arguments += '{';
  is_braced_ = true;
  out.back().arguments += arguments;
}

}  // namespace pewter
