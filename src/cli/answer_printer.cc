#include "cli/answer_printer.h"

#include <unistd.h>

#include "cli/terminal.h"

namespace pewter {
namespace {

constexpr std::string_view kDim = "\x1b[2m", kNormal = "\x1b[0m", kClearLine = "\r\x1b[K";
// A prompt of one chunk is read before anyone wonders.
constexpr int64_t kLongPrompt = 1024;

std::string counted(int64_t tokens, std::string_view what, double per_second) {
  std::string text = str_cat(tokens, " ", what, tokens == 1 ? " token" : " tokens");
  if (per_second > 0) text += str_cat(" (", fixed(per_second, 1), " tok/s)");
  return text;
}

std::string drafts_in_words(const DraftFigures& drafts) {
  if (drafts.drafts == 0) return "";
  return str_cat("mean acceptance length ", fixed(drafts.mean_acceptance_length(), 2), " (",
                 drafts.accepted_tokens, " of ", drafts.draft_tokens, " drafted tokens), ");
}

std::string reason_in_words(const Answer& answer) {
  const std::string_view place =
      answer.text.empty() && !answer.reasoning.empty() ? " while thinking" : "";
  switch (answer.completion.reason) {
    case FinishReason::kStop:
      return place.empty() ? "complete" : str_cat("ended", place);
    case FinishReason::kLength:
      return str_cat("cut at the token limit", place);
    case FinishReason::kCancelled:
      return str_cat("stopped", place);
    case FinishReason::kError:
      return "failed";
  }
  return "failed";
}

}  // namespace

AnswerPrinter::AnswerPrinter(ShowReasoning show, bool quiet)
    : terminal_(is_terminal(STDOUT_FILENO)),
      styled_(wants_style(STDOUT_FILENO)),
      show_reasoning_(show == ShowReasoning::kAlways ||
                      (show == ShowReasoning::kOnTerminals && terminal_)),
      quiet_(quiet) {}

void AnswerPrinter::put(std::string_view text) {
  if (text.empty()) return;
  const bool written = terminal_ ? write_text(STDOUT_FILENO, without_controls(text))
                                 : write_text(STDOUT_FILENO, text);
  failed_ |= !written;
  last_ = text.back();
}

void AnswerPrinter::open_reasoning() {
  if (in_reasoning_) return;
  in_reasoning_ = true;
  if (styled_)
    write_text(STDOUT_FILENO, kDim);
  else
    put("[thinking]\n");
}

void AnswerPrinter::close_reasoning() {
  if (!in_reasoning_) return;
  in_reasoning_ = false;
  if (last_ != '\n') put("\n");
  if (styled_)
    write_text(STDOUT_FILENO, kNormal);
  else
    put("[/thinking]\n");
  put("\n");
}

void AnswerPrinter::on_text(const OutputDelta& delta) {
  clear_prefill();
  if (!delta.reasoning.empty() && show_reasoning_) {
    open_reasoning();
    put(delta.reasoning);
  }
  if (delta.answer.empty()) return;
  close_reasoning();
  put(delta.answer);
}

void AnswerPrinter::on_prefill(int64_t done, int64_t total) {
  if (quiet_ || total < kLongPrompt || !is_terminal(STDERR_FILENO)) return;
  clear_prefill();
  if (done == total) return;
  write_text(STDERR_FILENO, str_cat("Reading the prompt: ", done, " of ", total, " tokens"));
  prefill_shown_ = true;
}

void AnswerPrinter::clear_prefill() {
  if (prefill_shown_) write_text(STDERR_FILENO, kClearLine);
  prefill_shown_ = false;
}

void AnswerPrinter::abandon() {
  clear_prefill();
  close_reasoning();
  if (last_ != '\n') put("\n");
}

void AnswerPrinter::finish(const Answer& answer) {
  abandon();
  if (!quiet_)
    print_statistics(answer);
  else if (answer.text.empty() && !show_reasoning_)  // silence would look like success
    write_text(STDERR_FILENO, str_cat("pewter: no answer: ", reason_in_words(answer), "\n"));
}

void AnswerPrinter::print_statistics(const Answer& answer) {
  const Completion& completion = answer.completion;
  const std::string line =
      str_cat("[", counted(completion.prompt_tokens, "prompt", prefill_rate(completion)), ", ",
              counted(completion.completion_tokens, "generated", decode_rate(completion)), ", ",
              drafts_in_words(completion.drafts), reason_in_words(answer), "]");
  const bool styled = wants_style(STDERR_FILENO);
  write_text(STDERR_FILENO, str_cat(styled ? kDim : "", line, styled ? kNormal : "", "\n"));
}

}  // namespace pewter
