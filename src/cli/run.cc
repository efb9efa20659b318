// pewter run: one answer, or a chat. Loading is loaded_model.h's, a single answer answer.h's, what
// reaches the screen answer_printer.h's and the chat chat.h's.
#include <unistd.h>

#include "base/blanks.h"
#include "base/clock.h"
#include "base/file.h"
#include "base/log.h"
#include "base/utf8.h"
#include "cli/answer_json.h"
#include "cli/answer_printer.h"
#include "cli/chat.h"
#include "cli/commands.h"
#include "cli/load_progress.h"
#include "cli/shared_flags.h"
#include "cli/terminal.h"

namespace pewter {
namespace {

constexpr int64_t kToolsLimit = int64_t{16} << 20;

class RunCommand final : public Command {
 public:
  void declare(Flags& flags) override;
  Status check() override;
  Result<int> run() override;

 private:
  bool is_chat() const { return !prompt_ && is_terminal(STDIN_FILENO); }
  ShowReasoning show_reasoning() const;
  Result<std::unique_ptr<LoadedModel>> load();
  AnswerOptions answer_options(const GenerationDefaults& defaults) const;
  Result<int> answer_once(const LoadedModel& model, Conversation& conversation,
                          const AnswerOptions& options, const std::string& prompt);

  ModelFlags model_flags_;
  SamplingFlags sampling_;
  std::optional<std::string> prompt_, system_, tools_file_;
  std::optional<int64_t> max_tokens_, logprobs_;
  std::optional<bool> thinking_, show_thinking_;
  bool raw_ = false, json_ = false, ignore_eos_ = false, quiet_ = false;
  double load_seconds_ = 0;
};

void RunCommand::declare(Flags& flags) {
  model_flags_.declare_model(flags);
  flags.positional("PROMPT", prompt_,
                   "The question; left out: standard input, or a chat on a terminal");
  flags.group("Prompt");
  flags.option("--system", "TEXT", system_, "System message");
  flags.toggle("--thinking,!--no-thinking", thinking_,
               "Let the model think first, or not (default: its template decides)");
  flags.option("--tools", "FILE", tools_file_, "JSON list of tools the model may call");
  sampling_.declare(flags);
  flags.group("Length");
  flags.token_count("--max-tokens", max_tokens_,
                    "Longest answer with its thinking (default: to the context's end)");
  flags.flag("--ignore-eos", ignore_eos_, "Go on to the longest answer, past the model's end");
  model_flags_.declare_backend(flags);
  flags.group("Output");
  flags.toggle("--show-thinking,!--hide-thinking", show_thinking_,
               "Write the reasoning, or not (default: on terminals only)");
  flags.flag("--raw", raw_, "Write the model's text as it is: special tokens, tags and all");
  flags.flag("--json", json_, "Write one JSON object at the end and nothing else");
  flags.option("--logprobs", "N", logprobs_,
               "With --json: log-probability of each token and of the N likeliest");
  flags.flag("--quiet", quiet_, "No progress and no statistics on standard error");
  flags.footer(
      "Examples:\n"
      "  pewter run models/demo \"What is the capital of France?\"\n"
      "  pewter run models/demo --temperature 0 --no-thinking < question.txt > answer.txt\n"
      "  pewter run models/demo                       a chat; /help says what it understands\n"
      "\n"
      "Exit code: 0, 1 when something failed, 2 for a wrong command line, 130 after Ctrl-C.");
}

Status RunCommand::check() {
  TRY(model_flags_.check());
  TRY(sampling_.check());
  TRY(check_range("--logprobs", logprobs_, 0, kTopLogprobs));
  if (logprobs_ && !json_) return Error{ErrorCode::kInvalidArgument, "--logprobs needs --json"};
  if (json_ && is_chat())
    return Error{ErrorCode::kInvalidArgument,
                 "--json needs a PROMPT, in the command line or on standard input"};
  return {};
}

ShowReasoning RunCommand::show_reasoning() const {
  if (!show_thinking_) return ShowReasoning::kOnTerminals;
  return *show_thinking_ ? ShowReasoning::kAlways : ShowReasoning::kNever;
}

Result<Json> read_tools(const std::optional<std::string>& path) {
  if (!path) return Json();
  TRY_ASSIGN(const std::string text, read_file(*path, kToolsLimit));
  Result<Json> tools = Json::parse(text);
  if (!tools) return tools.error().within(*path);
  if (!tools->is_array())
    return Error{ErrorCode::kInvalidArgument, *path + ": not a JSON list of tools"};
  return tools;
}

// Errors name the first broken byte: a model must not answer something that was not asked.
Status require_utf8(const char* what, std::string_view text) {
  const size_t broken = find_invalid_utf8(text);
  if (broken == std::string_view::npos) return {};
  return Error{ErrorCode::kInvalidArgument, str_cat(what, " is not valid UTF-8 at byte ", broken)};
}

Result<std::unique_ptr<LoadedModel>> RunCommand::load() {
  const Stopwatch watch;
  LoadProgress progress(model_flags_.model, quiet_ || json_);
  Result<std::unique_ptr<LoadedModel>> model = LoadedModel::load(
      model_flags_.model_options(),
      {.progress = [&progress](int64_t done, int64_t total) { progress.update(done, total); },
       .on_plan = [&progress](const MemoryReport& plan) { progress.plan(plan); }});
  if (!model) return model;
  progress.finish((*model)->report);
  if (!quiet_)
    for (const std::string& warning : (*model)->report.warnings) LOG_WARNING(warning);
  load_seconds_ = watch.seconds();
  return model;
}

AnswerOptions RunCommand::answer_options(const GenerationDefaults& defaults) const {
  return {.sampling = sampling_.apply(defaults.sampling),
          .max_tokens = max_tokens_.value_or(0),
          .ignore_eos = ignore_eos_,
          .raw = raw_,
          .top_logprobs = static_cast<int>(logprobs_.value_or(-1))};
}

Result<int> RunCommand::answer_once(const LoadedModel& model, Conversation& conversation,
                                    const AnswerOptions& options, const std::string& prompt) {
  AnswerPrinter printer(show_reasoning(), quiet_ || json_);
  InterruptCounter interrupts;
  AnswerHooks hooks{.on_text = {}, .on_prefill = {}, .wanted = [&] {
                      return interrupts.count() == 0 && !printer.failed();
                    }};
  if (!json_) {
    hooks.on_text = [&](const OutputDelta& delta) { printer.on_text(delta); };
    hooks.on_prefill = [&](int64_t done, int64_t total) { printer.on_prefill(done, total); };
  }
  const Result<Answer> answer = conversation.ask(prompt, options, hooks);
  if (!answer) {
    printer.abandon();
    return answer.error();
  }
  bool written = true;
  if (json_)
    written = write_text(STDOUT_FILENO,
                         answer_json(*answer, model.tokenizer, load_seconds_).dump() + "\n");
  else
    printer.finish(*answer);
  if (!written || printer.failed())
    return Error{ErrorCode::kUnavailable, "standard output does not take the answer"};
  return answer->completion.reason == FinishReason::kCancelled ? kExitInterrupted : kExitOk;
}

Result<int> RunCommand::run() {
  TRY_ASSIGN(Json tools, read_tools(tools_file_));
  const bool chat = is_chat();
  std::string prompt;
  if (!chat) {
    prompt = prompt_ ? *prompt_ : read_standard_input();
    TRY(require_utf8("the prompt", prompt));
    if (is_blank(prompt)) return Error{ErrorCode::kInvalidArgument, "the prompt is empty"};
  }
  const std::string system = system_.value_or("");
  TRY(require_utf8("--system", system));
  TRY_ASSIGN(const std::unique_ptr<LoadedModel> model, load());
  Conversation conversation(*model, std::move(tools));
  conversation.set_system(system);
  conversation.set_thinking(thinking_);
  const AnswerOptions options = answer_options(model->defaults);
  if (!chat) return answer_once(*model, conversation, options, prompt);
  return run_chat(conversation, {.answer = options, .show = show_reasoning(), .quiet = quiet_});
}

}  // namespace

std::unique_ptr<Command> make_run_command() { return std::make_unique<RunCommand>(); }

}  // namespace pewter
