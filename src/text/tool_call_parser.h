// ToolCallParser: the inside of a <tool_call> block in the XML dialect, read as it is generated.
// The grammar and where things end when a value holds tags itself: docs/tool-calls.md.
//
//   open           a function's tag is at the front of the text, and what follows proves a call
//   kParameters    between parameters
//   kValue         inside one: plain text goes out at once, values of other types when they close
//   kBlock         behind a function: another one, or the end of the block
//
// The text is its owner's: a parser takes off its front what it has understood. What a longer text
// could change is left, so that how a text is cut makes no difference.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "text/tool_schema.h"
#include "text/tool_tags.h"

namespace pewter {

// A piece of a call. Pieces of one index, joined, are its arguments as JSON text; an object that
// is not closed belongs to a call that was cut off.
struct ToolCallDelta {
  int64_t index = 0;      // 0, 1, 2 … in the order of their beginnings
  bool begins = false;    // the first piece of a call, the one with its name
  std::string name;       // of the function
  std::string arguments;  // more of them
};

class ToolCallParser {
 public:
  explicit ToolCallParser(std::shared_ptr<const ToolSchemas> tools) : tools_(std::move(tools)) {}

  bool declares(std::string_view function) const { return tools_->declares(function); }
  // What the function tag at `at` is: kFunction for the beginning of a call, kOther for text,
  // kUnsure. must_be_declared: an unknown name makes it text, as in places that need mending.
  TagKind judge(std::string_view text, size_t at, bool must_be_declared, Ending ending) const;

  // Begins a call whose function tag, judged, is at the front of the text.
  void open(std::string& text, std::vector<ToolCallDelta>& out);
  // A whole call at once.
  void add(std::string_view name, std::string_view arguments, std::vector<ToolCallDelta>& out);
  // A call that was cut off; `arguments` is an unterminated beginning.
  void add_unfinished(std::string_view name, std::string_view arguments,
                      std::vector<ToolCallDelta>& out);

  enum class Step : uint8_t { kAgain, kNeedMore, kLeft };
  // At the end, for a call that was cut off: its arguments begin, if they have not, so that no
  // client takes them for none.
  void cut(std::vector<ToolCallDelta>& out) { append({}, out); }
  // kLeft: the block is over, and the text goes on behind it.
  Step step(std::string& text, Ending ending, std::vector<ToolCallDelta>& out);
  // Goes on behind a call in a block: the state after a whole call was added.
  void enter_block() { state_ = State::kBlock; }

  int64_t begun() const { return begun_; }
  int64_t completed() const { return completed_; }
  bool is_unfinished() const { return begun_ > completed_; }

 private:
  enum class State : uint8_t { kParameters, kValue, kBlock };
  Step between_parameters(std::string& text, Ending ending, std::vector<ToolCallDelta>& out);
  Step inside_value(std::string& text, Ending ending, std::vector<ToolCallDelta>& out);
  Step inside_block(std::string& text, Ending ending, std::vector<ToolCallDelta>& out);
  void open_parameter(std::string& text, const Tag& tag, std::vector<ToolCallDelta>& out);
  // Where the value ends and what is behind its markup.
  struct Close {
    size_t value_end = 0, next = 0;
  };
  std::optional<Close> find_close(std::string_view text, Ending ending);
  bool ends_value(std::string_view text, size_t at, const Tag& next) const;
  bool at_line_start(std::string_view text, size_t at) const;
  bool is_new(std::string_view parameter) const;  // declared, and not seen in this call
  void emit_value(std::string& text, size_t size, std::vector<ToolCallDelta>& out);
  void close_value(std::string& text, Close close, std::vector<ToolCallDelta>& out);
  void close_call(std::vector<ToolCallDelta>& out);
  void append(std::string_view arguments, std::vector<ToolCallDelta>& out);

  std::shared_ptr<const ToolSchemas> tools_;
  State state_ = State::kBlock;
  int64_t begun_ = 0, completed_ = 0;
  std::string function_;
  std::vector<std::string> seen_;  // parameters of this call
  bool is_braced_ = false;         // its arguments have begun

  // Of the value that is open:
  TypeSet types_;
  bool skip_ = false;              // a parameter that was there before: the first one counts
  bool lead_pending_ = false;      // the newline behind the tag has yet to be looked for
  bool on_tag_line_ = false;       // there was none
  bool is_fresh_ = false;          // nothing of it has been taken off the text
  int depth_ = 0;                  // of <function=…> inside the value
  size_t scanned_ = 0;             // no end before this
  std::optional<size_t> retreat_;  // the first place that would end it at depth 0
  int retreats_ = 0;
};

}  // namespace pewter
