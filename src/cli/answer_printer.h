// Writes an answer where a person or a program reads it.
//
//   standard output is    reasoning                                  answer
//   a terminal            dimmed, apart from the answer              as it comes, control
//   characters
//                                                                    made harmless
//   anything else         left out                                   as it comes, every byte
//
// With `show` reasoning is written everywhere, between lines [thinking] and [/thinking] where there
// is no dimming; with `hide`, nowhere. Statistics go to standard error.
#pragma once

#include "cli/answer.h"

namespace pewter {

enum class ShowReasoning { kOnTerminals, kAlways, kNever };

class AnswerPrinter {
 public:
  AnswerPrinter(ShowReasoning show, bool quiet);

  void on_text(const OutputDelta& delta);
  void on_prefill(int64_t done, int64_t total);
  // Ends the line, and says on standard error how it went.
  void finish(const Answer& answer);
  // Standard output does not take what is written to it.
  bool failed() const { return failed_; }
  // After an error: leaves the terminal as it was.
  void abandon();

 private:
  void put(std::string_view text);
  void open_reasoning();
  void close_reasoning();
  void clear_prefill();
  void print_statistics(const Answer& answer);

  bool terminal_, styled_, show_reasoning_, quiet_;
  bool in_reasoning_ = false, prefill_shown_ = false, failed_ = false;
  char last_ = '\n';  // written to standard output
};

}  // namespace pewter
