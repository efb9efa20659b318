// pewter parse: raw output of a model in, the message the chat API would make of it out. For
// whoever hunts a parsing fault: no model is needed.
#include <unistd.h>

#include "base/file.h"
#include "base/utf8.h"
#include "cli/commands.h"
#include "cli/shared_flags.h"
#include "cli/terminal.h"
#include "server/answer/chat_message.h"
#include "server/request/messages.h"

namespace pewter {
namespace {

constexpr int64_t kToolsLimit = int64_t{16} << 20;
constexpr int64_t kMostCharacters = int64_t{1} << 30;

class ParseCommand final : public Command {
 public:
  void declare(Flags& flags) override {
    flags.option("--tools", "FILE", tools_file_, "JSON list of the tools that were declared");
    flags.option("--tool-choice", "WHICH", tool_choice_,
                 "auto (default), none, required, or the name of a function");
    flags.flag("--one-call", one_call_, "As with parallel_tool_calls: false");
    flags.flag("--thinking", thinking_, "The prompt had opened a <think> block");
    flags.option("--end", "WHY", end_, "stop, or length: what ended the text");
    flags.option("--chunk", "N", chunk_, "Write deltas, of so many characters each");
    flags.footer(
        "Reads standard input. Writes the choice's object, or with --chunk one delta a line.\n"
        "\n"
        "Example:\n"
        "  pewter run MODEL --tools tools.json --raw \"…\" | pewter parse --thinking --tools "
        "tools.json");
  }
  Status check() override {
    if (end_ != "stop" && end_ != "length")
      return Error{ErrorCode::kInvalidArgument, "--end: want stop or length"};
    if (tool_choice_ && *tool_choice_ != "auto" && *tool_choice_ != "none" && !tools_file_)
      return Error{ErrorCode::kInvalidArgument, "--tool-choice: there are no --tools"};
    return check_range("--chunk", chunk_, 1, kMostCharacters);
  }
  Result<int> run() override;

 private:
  Result<OutputParserOptions> options() const;
  std::string whole(OutputParser& parser, const std::string& text) const;
  std::string deltas(OutputParser& parser, const std::string& text, int64_t chunk) const;
  Ending ending() const { return end_ == "length" ? Ending::kLength : Ending::kStop; }

  std::optional<std::string> tools_file_, tool_choice_;
  std::string end_ = "stop";
  std::optional<int64_t> chunk_;
  bool one_call_ = false, thinking_ = false;
};

Result<OutputParserOptions> ParseCommand::options() const {
  OutputParserOptions options{.in_reasoning = thinking_, .parallel_calls = !one_call_};
  if (!tools_file_) return options;
  TRY_ASSIGN(const std::string text, read_file(*tools_file_, kToolsLimit));
  const Result<Json> json = Json::parse(text);
  if (!json) return json.error().within(*tools_file_);
  const Result<Json> tools = server::check_tools(*json);
  if (!tools) return tools.error().within(*tools_file_);
  auto schemas = std::make_shared<const ToolSchemas>(*tools);
  const std::string choice = tool_choice_.value_or("auto");
  if (choice == "none") {
    options.tool_choice = ToolChoice::kNone;
  } else if (choice == "required") {
    options.tool_choice = ToolChoice::kRequired;
  } else if (choice != "auto") {
    if (!schemas->declares(choice))
      return Error{ErrorCode::kInvalidArgument,
                   str_cat("--tool-choice: ", *tools_file_, " declares no \"", choice, "\"")};
    options.tool_choice = ToolChoice::kNamed;
  }
  if (!tools->is_null()) options.tools = std::move(schemas);
  return options;
}

// {"message": {…}, "finish_reason": …}
std::string ParseCommand::whole(OutputParser& parser, const std::string& text) const {
  server::ChatMessage message;
  message.append(parser.push(text));
  message.append(parser.finish(ending()));
  std::string out = "{\"message\":";
  server::append_message(out, message, parser.in_reasoning(), server::ReasoningField::kBoth);
  out += str_cat(",\"finish_reason\":\"", parser.finish_reason(), "\"}\n");
  return out;
}

// {"delta": {…}} a line, the last with finish_reason. What a piece leaves open has no line.
std::string ParseCommand::deltas(OutputParser& parser, const std::string& text,
                                 int64_t chunk) const {
  server::ChatMessage message;
  std::string out;
  const auto say = [&](const OutputDelta& delta) {
    if (delta.empty()) return;
    message.append(delta);
    out += "{\"delta\":";
    server::append_delta(out, delta, message.calls, parser.in_reasoning(),
                         server::ReasoningField::kBoth);
    out += "}\n";
  };
  for (std::string_view rest = text; !rest.empty();) {
    size_t size = 0;
    for (int64_t n = 0; n < chunk && size < rest.size(); ++n)
      size += static_cast<size_t>(utf8_next(rest.substr(size)).length);
    say(parser.push(rest.substr(0, size)));
    rest.remove_prefix(size);
  }
  say(parser.finish(ending()));
  out += str_cat("{\"delta\":{},\"finish_reason\":\"", parser.finish_reason(), "\"}\n");
  return out;
}

Result<int> ParseCommand::run() {
  TRY_ASSIGN(const OutputParserOptions parser_options, options());
  // What the server sees has been through a detokenizer.
  const std::string text = replace_invalid_utf8(read_standard_input());
  OutputParser parser(parser_options);
  if (!write_text(STDOUT_FILENO, chunk_ ? deltas(parser, text, *chunk_) : whole(parser, text)))
    return Error{ErrorCode::kUnavailable, "standard output does not take the message"};
  return kExitOk;
}

}  // namespace

std::unique_ptr<Command> make_parse_command() { return std::make_unique<ParseCommand>(); }

}  // namespace pewter
